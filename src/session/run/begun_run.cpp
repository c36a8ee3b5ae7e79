// SPDX-License-Identifier: Apache-2.0
#include "session/run/begun_run.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "core/base/log.h"
#include "core/state/checkpoint.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

constexpr const char* kFinalSync = "outer.final_sync";

/// Of the newest checkpoint that can be read, where `resume` is "auto"; else of the one it means.
std::optional<CheckpointInfo> checkpoint_of(const Storage& storage,
                                            const std::filesystem::path& out,
                                            const std::string& resume) {
  std::vector<std::filesystem::path> candidates;
  try {
    candidates = resume != "auto" ? std::vector{find_checkpoint(storage, resume)}
                 : out.empty()    ? std::vector<std::filesystem::path>{}
                                  : list_checkpoints(storage, out / "ckpt");
  } catch (const SystemError&) {  // there is none
  }
  for (const std::filesystem::path& folder : candidates) {
    try {
      return read_checkpoint_info(storage, folder);
    } catch (const Error&) {  // a damaged one
    }
  }
  return std::nullopt;
}

std::optional<FinalSync> final_sync_of(const CheckpointInfo& info, Config config) {
  const auto kept = info.settings.find(kFinalSync);
  for (const FinalSync each : {FinalSync::kFull, FinalSync::kDrain, FinalSync::kNone}) {
    config.outer.final_sync = each;
    const bool is_its = kept != info.settings.end() ? final_sync_name(each) == kept->second
                                                    : config_digest(config) == info.config_hash;
    if (is_its) return each;
  }
  return std::nullopt;
}

}  // namespace

std::map<std::string, std::string> lasting_settings(const Config& config) {
  if (!config.origins.contains(kFinalSync)) return {};  // the method has no such key
  return {{kFinalSync, std::string(final_sync_name(config.outer.final_sync))}};
}

Config as_begun(const Storage& storage, Config config, const std::filesystem::path& out,
                const std::string& resume) {
  const auto origin = config.origins.find(kFinalSync);
  if (resume == "never" || origin == config.origins.end() || origin->second.text != "default") {
    return config;
  }
  const std::optional<CheckpointInfo> info = checkpoint_of(storage, out, resume);
  const std::optional<FinalSync> begun = info ? final_sync_of(*info, config) : std::nullopt;
  if (!begun || *begun == config.outer.final_sync) return config;
  log_info("the run was begun with outer.final_sync = \"{}\" and ends with it",
           final_sync_name(*begun));
  config.outer.final_sync = *begun;
  origin->second.text = fmt::format("{} (checkpoint of step {})", kAsBegun, info->step);
  return config;
}

void end_as(const Config& begun, Config& config) {
  const auto own = config.origins.find(kFinalSync);
  const auto its = begun.origins.find(kFinalSync);
  if (own == config.origins.end() || its == begun.origins.end()) return;
  if (own->second.text != "default") return;
  config.outer.final_sync = begun.outer.final_sync;
  own->second = its->second;
}

}  // namespace isthmus::app
