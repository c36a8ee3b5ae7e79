// SPDX-License-Identifier: Apache-2.0
// The checkpoint and changes with which a run with --resume would continue, before it runs
// (--dry-run). The checks are those of the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/data_file.h"
#include "core/base/storage.h"
#include "isthmus/config.h"
#include "session/run/run_changes.h"
#include "session/run/trainer.h"

namespace isthmus::app {

/// The parameters of a resume.
struct ResumeQuestion {
  std::filesystem::path out;     // the run's folder, or empty
  std::string resume = "never";  // as SessionOptions has it
  RunChanges changes = {};
  std::optional<WorkerId> only = std::nullopt;  // this process's site; nothing: all are here
  std::span<const DataFile> data = {};          // the run's
  TokensOfBeginning tokens_of_beginning = {};   // of these files
  std::string base_digest = {};                 // InitialWeights::base_digest
};

struct ResumePreview {
  std::optional<std::filesystem::path> checkpoint;  // nothing: there is none, and a run would begin
  std::int64_t step = 0;                            // after which the run would continue
  std::vector<std::string> changes;                 // still to be made

  [[nodiscard]] bool is_complete(std::int64_t steps) const { return checkpoint && step >= steps; }
};

/// Reads only. RETURNS: nothing without --resume. THROWS: ConfigError, SystemError as the run
/// would.
[[nodiscard]] std::optional<ResumePreview> preview_resume(const Storage& storage,
                                                          const Config& config,
                                                          const ResumeQuestion& question);

}  // namespace isthmus::app
