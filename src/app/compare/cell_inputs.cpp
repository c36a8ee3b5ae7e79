// SPDX-License-Identifier: Apache-2.0
#include "app/compare/cell_inputs.h"

#include <fmt/format.h>

#include "core/base/hash.h"
#include "kernels/isa.h"

namespace isthmus::app {

std::string CellInputs::of(const Config& config) {
  const std::string init =
      config.model.init.empty() ? "none" : weights(config.locate(config.model.init));
  std::string digests;
  for (const DataFile& file : data(config).fingerprint) {
    digests += file.sha256 + ",";
  }
  return fmt::format("data {} {} weights {} kernels {}", digests, config.data.val_fraction, init,
                     kernels::name_of(kernels::isa_named(config.train.kernels)));
}

const OpenData& CellInputs::data(const Config& config) {
  const std::string name = fmt::format("{} {}", config.located_source(), config.data.val_fraction);
  const auto known = sources_.find(name);
  if (known != sources_.end()) {
    return known->second;
  }
  OpenData data{Dataset::open(storage_, config.data, config.file.parent_path()), {}};
  data.fingerprint = data.data.fingerprint();
  return sources_.emplace(name, std::move(data)).first->second;
}

std::vector<DataFile> CellInputs::files() const {
  std::vector<DataFile> all;
  for (const auto& [name, data] : sources_) {
    all.insert(all.end(), data.fingerprint.begin(), data.fingerprint.end());
  }
  return all;
}

const std::string& CellInputs::weights(const std::filesystem::path& folder) {
  std::string& digest = weights_[folder];
  if (!digest.empty()) {
    return digest;
  }
  for (const std::string& name : storage_.list(folder)) {
    if (name.ends_with(".safetensors") || name.ends_with(".json")) {
      const MappedFile file = storage_.map(folder / name);
      digest += fmt::format("{}={},", name, sha256_hex(file.bytes()));
    }
  }
  return digest;
}

}  // namespace isthmus::app
