// SPDX-License-Identifier: Apache-2.0
// Any text as a configuration, with an optional override after the first NUL: either errors with
// places, or a configuration whose resolved text loads back to the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/experiment.h"
#include "isthmus/config.h"

namespace {

isthmus::SchemaContext context() {
  isthmus::SchemaContext known;
  isthmus::MethodInfo method;
  method.name = "ddp";
  method.keys = {"codec", "exchange"};
  known.methods.push_back(method);
  method.name = "streaming-diloco";
  method.keys = {"H",       "lr",         "momentum",  "nesterov", "fragments",
                 "pattern", "embeddings", "offsets",   "overlap",  "alpha",
                 "codec",   "exchange",   "final_sync"};
  method.default_lr = 0.4;
  method.default_momentum = 0.9;
  known.methods.push_back(method);
  return known;
}

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

/// The same text as a comparison: errors with places, or variants whose run files load.
void try_experiment(std::string_view text, const std::vector<std::string>& overrides,
                    const isthmus::SchemaContext& known) {
  try {
    const auto experiment = isthmus::Experiment::load_text(text, "/f/f.toml", overrides, known);
    for (std::size_t v = 0; v < experiment.variants().size(); ++v) {
      const isthmus::Config config = experiment.config(v, {});
      require(isthmus::config_digest(isthmus::load_config_text(
                  config.text, "/f/f.toml", {}, known)) == isthmus::config_digest(config));
    }
  } catch (const isthmus::ConfigErrors& errors) {
    require(!errors.diagnostics().empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  std::vector<std::string> overrides;
  if (end < input.size()) {
    overrides.emplace_back(input.substr(end + 1));
  }
  const isthmus::SchemaContext known = context();
  try_experiment(input.substr(0, end), overrides, known);
  try {
    const auto config =
        isthmus::load_config_text(input.substr(0, end), "/f/f.toml", overrides, known);
    const std::string text = isthmus::resolved_toml(config);
    const auto again = isthmus::load_config_text(text, "/f/f.toml", {}, known);
    require(isthmus::config_digest(again) == isthmus::config_digest(config));
  } catch (const isthmus::ConfigErrors& errors) {
    require(!errors.diagnostics().empty());
    for (const isthmus::Diagnostic& each : errors.diagnostics()) {
      require(!each.code.empty() && !each.where.empty() && !each.message.empty());
      require(each.line >= 0 && each.column >= 0 && each.width >= 1);
    }
    require(errors.summary().find('\n') == std::string::npos);
  }
  return 0;
}
