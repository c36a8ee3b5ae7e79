// SPDX-License-Identifier: Apache-2.0
#include "app/train/hf_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>
#include <string>

#include "inner/hf/hf_weights.h"
#include "isthmus/errors.h"
#include "record/run_lock.h"

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
  // Beside the folder, which appears whole: ".NAME.lock".
  const std::filesystem::path target = folder.has_filename() ? folder : folder.parent_path();
  const std::filesystem::path beside = target.has_parent_path() ? target.parent_path() : ".";
  const std::string file = fmt::format(".{}.lock", target.filename().string());
  std::optional<RunLock> lock;
  try {
    lock.emplace(beside, RunLock::Options{.file = file.c_str(),
                                          .remedy = "wait until it ends, or name another folder"});
  } catch (const SystemError& error) {
    throw SystemError(fmt::format("'{}': a model is written there by one process at a time: {}",
                                  target.string(), error.what()));
  }
  return write_hf_folder(storage, folder, out);
}

void check_model_target(const std::filesystem::path& folder) {
  constexpr const char* kRemedy = "name another folder";
  check_nobody_writes(folder, kRemedy);
  check_outside_checkpoints(folder);
  std::error_code error;
  std::filesystem::path above = std::filesystem::weakly_canonical(folder, error);
  while (above.has_relative_path()) {
    above = above.parent_path();
    check_nobody_writes(above, kRemedy);
  }
}

void tell_left_out(Session& session, const std::vector<std::string>& left_out) {
  if (left_out.empty()) return;
  session.out.write(fmt::format("left out: {}\n", fmt::join(left_out, ", ")));
}

}  // namespace isthmus::app
