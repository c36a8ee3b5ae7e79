// SPDX-License-Identifier: Apache-2.0
// The checkpoint that a run continues from, and whether it may: found before anything is written.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/data_file.h"
#include "core/base/storage.h"
#include "core/state/checkpoint.h"
#include "isthmus/config.h"
#include "session/run/held_checkpoint.h"
#include "session/run/run_changes.h"
#include "session/run/trainer.h"

namespace isthmus::app {

/// Whether `path` is `folder` or below it, links followed; whether both name one place.
[[nodiscard]] bool lies_within(const std::filesystem::path& path,
                               const std::filesystem::path& folder);
[[nodiscard]] bool is_same_place(const std::filesystem::path& a, const std::filesystem::path& b);

/// `resume`: never | auto (the newest intact checkpoint of the run in `out`, if any) | PATH of a
/// checkpoint or run. THROWS: ConfigError, SystemError naming what is missing or damaged.
[[nodiscard]] std::optional<Checkpoint> find_resume(const Storage& storage,
                                                    const std::filesystem::path& out,
                                                    const std::string& resume);

/// The data files of the checkpoint that `find_resume` finds, if there is one; none if all are
/// damaged.
[[nodiscard]] std::optional<std::vector<DataFile>> data_begun_with(const Storage& storage,
                                                                   const std::filesystem::path& out,
                                                                   const std::string& resume);

/// A run that is to continue.
struct ResumedRun {
  const Config& config;
  const std::string& digest;  // config_digest of `config`
  const RunChanges& changes;
  std::span<const DataFile> data;
  const TokensOfBeginning& tokens_of_beginning;
  bool is_site = false;  // one of several processes
  int workers = 1;
};
struct HeldCheckpoints {
  std::vector<HeldCheckpoint> held;  // each step once
  bool unreadable = false;           // there are further, unreadable ones
};
/// The checkpoints in `out` that worker `rank` could continue from; damaged ones are left out with
/// a warning. THROWS: ConfigError when `out` is empty or belongs to another worker, or as
/// check_same_configuration and check_data.
[[nodiscard]] HeldCheckpoints held_checkpoints(const Storage& storage,
                                               const std::filesystem::path& out,
                                               const ResumedRun& run, WorkerId rank);

/// RETURNS: null if the checkpoint's configuration is `config`, whose config_digest is `digest`;
/// otherwise that configuration, if it is one before `changes`. Whether the change is allowed is
/// not checked. THROWS: ConfigError naming the keys that differ if it is neither.
const Config* check_same_configuration(const Storage& storage, const Checkpoint& checkpoint,
                                       const Config& config, const std::string& digest,
                                       const RunChanges& changes);

/// The changes of a run that continues from a checkpoint.
struct ResumeFindings {
  const Config* before = nullptr;    // the configuration before the changes; null: no changes
  std::optional<DataGrowth> growth;  // data were appended
};
/// Checks whether `run` may continue from `checkpoint`. Reads only. THROWS: ConfigError naming the
/// settings whose meaning would change.
[[nodiscard]] ResumeFindings check_resume(const Storage& storage, const Checkpoint& checkpoint,
                                          const ResumedRun& run);
/// A line for each change that `run` makes at `checkpoint`.
[[nodiscard]] std::vector<std::string> changes_at(const Checkpoint& checkpoint,
                                                  const ResumedRun& run,
                                                  const ResumeFindings& findings);

/// A sample is a place in the data, so other data would silently repeat or skip samples. RETURNS:
/// the growth, if the checkpoint's data are the beginning of the run's and its changes name
/// data.source. THROWS: ConfigError naming the files that differ, and why that is no growth.
std::optional<DataGrowth> check_data(const Checkpoint& checkpoint, const ResumedRun& run);

}  // namespace isthmus::app
