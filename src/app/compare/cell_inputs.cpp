// SPDX-License-Identifier: Apache-2.0
#include "app/compare/cell_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/hash.h"
#include "data/tokenize/conversation_data.h"
#include "kernels/isa.h"

namespace isthmus::app {
namespace {

/// Readings that the first versions knew are not named, so that their cells stay.
bool is_read_as_first(const OpenData& source) {
  constexpr std::string_view kFormats[] = {"text", "nanoGPT", "llm.c", "Megatron", "synth"};
  std::string_view rest = source.data.format();
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('+'), rest.size());
    if (std::ranges::find(kFormats, rest.substr(0, end)) == std::end(kFormats)) return false;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return std::ranges::none_of(source.fingerprint, [](const DataFile& file) {
    return file.reading.find("inflated") != std::string::npos;
  });
}

/// The settings on which the opening of the data depends.
std::string sources_text(const Config& config) {
  const DataConfig& data = config.data;
  std::string text = fmt::format("{} {}", config.located_source(), data.val_fraction);
  for (const auto& [name, source] : config.located_sources()) {
    text += fmt::format(" {} = {}", name, source);
  }
  for (const auto& [name, share] : data.mix) text += fmt::format(" {} = {}", name, share);
  if (data.eos) text += fmt::format(" eos {}", *data.eos);
  if (config.train.objective == "sft") {
    text += fmt::format(" conversations {} {} {} {}", config.locate(config.model.init).string(),
                        config.train.context, data.over_long, data.skip_bad);
  }
  return text;
}

}  // namespace

CellInputs::CellInputs(const Storage& storage, const CellProgram& program) : storage_(storage) {
  if (program.given()) program_ = program_digest(storage, program);
}

std::string CellInputs::of(const Config& config) {
  const std::string init =
      config.model.init.empty() ? "none" : weights(config.locate(config.model.init));
  std::string digests;
  if (config.data.source.empty() && config.data.sources.empty()) {
    return fmt::format("{} weights {}", program_, init);
  }
  const OpenData& source = data(config);
  const bool as_first = is_read_as_first(source);
  for (const DataFile& file : source.fingerprint) {
    digests += file.sha256 + (as_first ? "" : " as " + file.reading) + ",";
  }
  if (!program_.empty()) {
    return fmt::format("{} data {} {} weights {}", program_, digests, config.data.val_fraction,
                       init);
  }
  return fmt::format("data {} {} weights {} kernels {}", digests, config.data.val_fraction, init,
                     kernels::name_of(kernels::isa_named(config.train.kernels)));
}

const OpenData& CellInputs::data(const Config& config) {
  const std::string name = sources_text(config);
  const auto known = sources_.find(name);
  if (known != sources_.end()) {
    return known->second;
  }
  OpenData data{open_data(storage_, config), {}};
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
