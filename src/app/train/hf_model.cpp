// SPDX-License-Identifier: Apache-2.0
#include "app/train/hf_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "inner/hf/hf_weights.h"

namespace isthmus::app {

HfModel::HfModel(const ModelShape& shape)
    : layout(shape), values(static_cast<std::size_t>(layout.elements())) {}

std::span<float> HfModel::tensor(const TensorInfo& info) {
  return std::span(values).subspan(static_cast<std::size_t>(info.elements.begin),
                                   static_cast<std::size_t>(info.elements.size()));
}

std::vector<Parameter> HfModel::parameters() {
  std::vector<Parameter> parameters;
  for (const TensorInfo& info : layout.tensors()) {
    parameters.push_back(
        {info.name, info.layer, info.shape, info.elements, tensor(info), info.decay()});
  }
  return parameters;
}

std::vector<std::string> HfModel::write(Storage& storage, const std::filesystem::path& folder,
                                        const std::filesystem::path& from) {
  HfExport out;
  out.shape = layout.shape();
  out.from = from;
  for (const TensorInfo& info : layout.tensors()) {
    out.tensors.push_back({info.name, info.shape, tensor(info)});
  }
  return write_hf_folder(storage, folder, out);
}

void tell_left_out(Session& session, const std::vector<std::string>& left_out) {
  if (left_out.empty()) return;
  session.out.write(fmt::format("left out: {}\n", fmt::join(left_out, ", ")));
}

}  // namespace isthmus::app
