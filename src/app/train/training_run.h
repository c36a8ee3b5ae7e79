// SPDX-License-Identifier: Apache-2.0
// The parts of `run_training`: checks (training_checks.cpp), then the run (training.cpp). Internal
// to these two.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/observe/run_watch.h"
#include "app/train/training.h"
#include "app/train/training_plan.h"
#include "core/state/checkpoint.h"
#include "inner/model/model_layout.h"
#include "record/run_directory.h"
#include "record/run_log.h"
#include "session/run/resume.h"
#include "session/site/site_session.h"

namespace isthmus::app {

/// The one worker of this process, where it is one site of several.
[[nodiscard]] std::optional<WorkerId> own_rank(const Config& config,
                                               const TrainingRequest& request);

/// One run, from checks to summary, in the order in which things can go wrong without a trace.
class Training {
 public:
  /// Checks everything that can be wrong before anything is written. Borrows all three.
  Training(const Config& config, const TrainingRequest& request, Session& session);

  TrainingOutcome run();

 private:
  /// Everything that can be wrong with the configuration, before anything is written.
  void check() const;
  void check_force() const;
  void check_resume() const;
  /// Meets the other sites, before anything is written.
  void join_sites();
  [[nodiscard]] Manifest manifest() const;
  [[nodiscard]] ExistingRun existing() const {
    return goes_on_         ? ExistingRun::kResume
           : request_.force ? ExistingRun::kForce
                            : ExistingRun::kRefuse;
  }
  [[nodiscard]] double byte_scale() const;
  /// Opens the pages about the run, where they are asked for.
  void let_watch();
  /// One line on what computes, and why no device does where there is one.
  void tell_device() const;
  [[nodiscard]] StatusBoard* status() { return watch_ ? &watch_->board() : nullptr; }
  void go(RunDirectory& directory, const Manifest& manifest, MetricsLog& log, RunTotals& totals,
          TrainingOutcome& outcome);

  SystemStorage storage_;
  const Config& config_;
  const TrainingRequest& request_;
  Session& session_;
  ModelLayout layout_;
  TrainingPlan plan_;
  std::optional<OpenData> own_data_;  // nothing where it is shared with other runs
  const Dataset& data_;
  std::int64_t eval_tokens_;
  std::string digest_;
  std::filesystem::path out_;  // empty: a new folder under runs/
  std::optional<Checkpoint> resume_;
  bool goes_on_;  // the run in `out_` goes on; otherwise a new one begins
  std::vector<DataFile> fingerprint_;
  std::optional<RunWatch> watch_;
  std::optional<SiteSession> site_;
  std::string run_id_;                    // agreed with the other sites; else empty
  std::optional<std::int64_t> given_up_;  // SiteStart's: the run begins anew
  std::optional<OfferNote> joins_;  // the run goes on already; this site takes over a state of it
};

}  // namespace isthmus::app
