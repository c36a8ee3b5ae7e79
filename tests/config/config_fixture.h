// SPDX-License-Identifier: Apache-2.0
// A smallest configuration and the method table that configuration tests load with.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/config.h"

namespace isthmus {

inline constexpr std::string_view kMinimal = R"([data]
source = "text:input.txt"
[train]
steps = 100
global_batch = "1280 tok"
)";

inline SchemaContext test_context() {
  SchemaContext context;
  const auto add = [&context](std::string name, std::vector<std::string> keys, double lr) {
    MethodInfo info;
    info.name = std::move(name);
    info.keys = std::move(keys);
    info.default_lr = lr;
    info.default_momentum = lr > 0 ? 0.9 : 0;
    info.default_alpha = 0.5;
    context.methods.push_back(std::move(info));
  };
  add("ddp", {"codec", "exchange", "commit"}, 0);
  context.methods.back().commits_rounds = false;
  add("localsgd", {"H", "codec", "exchange", "final_sync"}, 0);
  add("diloco", {"H", "lr", "momentum", "nesterov", "codec", "exchange", "final_sync"}, 0.7);
  const auto add_ramps = [&context] {
    std::vector<std::string>& keys = context.methods.back().keys;
    keys.insert(keys.end(), {"lr_warmup", "lr_decay", "lr_floor", "momentum_warmup",
                             "momentum_decay", "momentum_floor"});
  };
  add_ramps();
  add("muloco", {"H", "lr", "momentum", "nesterov", "codec", "exchange", "final_sync", "carry"},
      0.7);
  add_ramps();
  context.methods.back().default_H = 30;
  context.methods.back().inside = {.optimizer = "muon",
                                   .lr = 0.02,
                                   .weight_decay = 0.01,
                                   .momentum = 0.95,
                                   .nesterov = false,
                                   .adjust_lr = "spectral_norm"};
  add("streaming-diloco",
      {"H", "lr", "momentum", "nesterov", "fragments", "pattern", "embeddings", "offsets",
       "overlap", "alpha", "codec", "exchange", "final_sync", "carry", "late"},
      0.4);
  add("gpa", {"mu_x", "mu_y"}, 0);
  context.methods.back().one_worker = true;
  add("decoupled", {"H", "lr", "momentum", "nesterov", "overlap", "codec", "quorum", "grace"}, 0.7);
  context.methods.back().by_arrival = true;
  add("co2",
      {"H", "lr", "momentum", "codec", "exchange", "final_sync", "carry", "outlier",
       "staleness_penalty", "staleness_constant", "momentum_clip"},
      1);
  context.methods.back().round_behind = true;
  add("sparseloco", {"H", "lr", "error_decay", "codec", "final_sync", "outlier"}, 1);
  context.methods.back().default_H = 30;
  add("01-adam",
      {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper",
       "warmup_codec", "variance_floor", "codec", "exchange"},
      0);
  add("spsa", {"eps", "samples", "divisor", "sign_only", "clip", "weight_decay", "code_scale"}, 0);
  context.codecs = {{"fp32", "", 32}, {"int8", "", 8.125}};
  context.check_codec = [](const std::string& spelling) {
    if (spelling != "fp32" && !spelling.starts_with("int8")) {
      throw ConfigError("no such codec");
    }
  };
  return context;
}

inline Config load(std::string_view text, const std::vector<std::string>& overrides = {}) {
  return load_config_text(text, "run.toml", overrides, test_context());
}
inline Config load_minimal(const std::vector<std::string>& overrides = {}) {
  return load(kMinimal, overrides);
}

/// What loading complains of; empty when it loads.
inline std::vector<Diagnostic> diagnostics_of(std::string_view text,
                                              const std::vector<std::string>& overrides = {}) {
  try {
    (void)load(text, overrides);
    return {};
  } catch (const ConfigErrors& errors) {
    return errors.diagnostics();
  }
}

/// Origins are comments and change from load to load; the rest must not.
inline std::string without_comments(const std::string& text) {
  std::istringstream stream(text);
  std::string line;
  std::string kept;
  while (std::getline(stream, line)) {
    line = line.substr(0, line.find('#'));
    kept += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return kept;
}

}  // namespace isthmus
