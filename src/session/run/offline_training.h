// SPDX-License-Identifier: Apache-2.0
// Offline training: a site that has lost the others trains alone, for at most net.max_solo_rounds
// windows of outer.H steps, while its next session looks for the others. It uses the trainer of the
// worker that was cut off, on its own task. Nothing is sent, and no line of the run is written; the
// result belongs to the work that the site takes along (outer/parts/offline_delta.h). Its steps
// take the samples of the steps after the worker's last one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/system_runtime.h"
#include "isthmus/config.h"
#include "outer/parts/offline_delta.h"
#include "record/run_status.h"
#include "session/run/run_plan.h"
#include "session/run/trainer.h"

namespace isthmus::app {

class OfflineTraining {
 public:
  struct Parts {
    const Config& config;  // borrowed for its life
    RunPlan plan;
    WorkerId self{0};
    std::unique_ptr<Trainer> trainer;
    outer::UncommittedDelta work;           // of the worker that was cut off
    std::span<const Fragment> fragments{};  // copied
    std::unique_ptr<Runtime> runtime{};     // empty: the system's
  };
  /// Nothing happens before `begin`.
  explicit OfflineTraining(Parts parts);
  /// Ends after the current step. Work that `end` has not returned is lost, and logged.
  ~OfflineTraining();
  OfflineTraining(const OfflineTraining&) = delete;
  OfflineTraining& operator=(const OfflineTraining&) = delete;

  /// Call once, on the task that made the trainer and will destroy this object. A later failure,
  /// for example of data, threads or memory, is logged and ends the training.
  void begin();
  /// Any task.
  [[nodiscard]] bool trains() const;
  /// Blocks for the current step. RETURNS: the work, including the steps trained alone; all of it
  /// is lost if the parameters' values are not available any more. Call once.
  [[nodiscard]] outer::UncommittedDelta end();

 private:
  void train();
  /// THROWS: Error, bad_alloc. The work is then complete up to the previous step.
  void take_steps();
  /// RETURNS: whether to take another step.
  [[nodiscard]] bool goes_on() const;

  const Config& config_;
  const RunPlan plan_;
  const WorkerId self_;
  const std::unique_ptr<Trainer> trainer_;
  // Used only by the task while it runs.
  outer::OfflineDelta work_;
  std::optional<outer::UncommittedDelta> taken_;
  const StepIndex last_;  // the last step that may be taken
  const std::unique_ptr<Runtime> runtime_;
  const std::unique_ptr<WaitQueue> queue_;
  // Under its lock:
  bool ends_ = false;
  bool over_ = true;
  std::unique_ptr<Task> task_;
};

/// The pending work of a site that was cut off, until the site rejoins. If it never does, the
/// destructor logs the loss.
struct PendingDelta {
  PendingDelta() = default;
  ~PendingDelta();
  PendingDelta(const PendingDelta&) = delete;
  PendingDelta& operator=(const PendingDelta&) = delete;

  std::optional<outer::UncommittedDelta> work;
  std::unique_ptr<OfflineTraining> training;  // while set, it holds the work
  bool told = false;                          // logged that no work can be taken along
  LateStatus late;                            // lateness so far

  /// The other sites are present.
  void end_training() {
    if (training) work = training->end();
    training.reset();
  }
};

}  // namespace isthmus::app
