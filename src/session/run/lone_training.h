// SPDX-License-Identifier: Apache-2.0
// A site that has lost the others trains on alone, for net.max_solo_rounds windows of outer.H steps
// at most, while its next session looks for them: with the trainer of the worker that was cut off,
// on a task of its own. Nothing is sent and no line of the run is written; what it trains on
// belongs to the work that the site takes along (outer/parts/lone_work.h). Its steps take the
// samples of the steps after the worker's last one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/system_runtime.h"
#include "isthmus/config.h"
#include "outer/parts/lone_work.h"
#include "record/run_status.h"
#include "session/run/run_plan.h"
#include "session/run/trainer.h"

namespace isthmus::app {

class LoneTraining {
 public:
  struct Parts {
    const Config& config;  // borrowed for its life
    RunPlan plan;
    WorkerId self{0};
    std::unique_ptr<Trainer> trainer;
    outer::OwnWork work;                    // of the worker that had it
    std::span<const Fragment> fragments{};  // copied
    std::unique_ptr<Runtime> runtime{};     // empty: the system's
  };
  /// Nothing happens before `begin`.
  explicit LoneTraining(Parts parts);
  /// Ends, after the step that is under way. What `end` has not handed over is lost, and told.
  ~LoneTraining();
  LoneTraining(const LoneTraining&) = delete;
  LoneTraining& operator=(const LoneTraining&) = delete;

  /// Once, by the task that made the trainer and will destroy this. What goes wrong from here on,
  /// with the data or for want of a thread or memory say, is warned of and ends it.
  void begin();
  /// Any task.
  [[nodiscard]] bool trains() const;
  /// Blocks for the step that is under way. RETURNS: the work, with what has been trained on; all
  /// of it lost where the parameters' values cannot be had any more. Once.
  [[nodiscard]] outer::OwnWork end();

 private:
  void train();
  /// THROWS: Error, bad_alloc. The work is whole then, up to the step before.
  void take_steps();
  /// RETURNS: whether another step is to be taken.
  [[nodiscard]] bool goes_on() const;

  const Config& config_;
  const RunPlan plan_;
  const WorkerId self_;
  const std::unique_ptr<Trainer> trainer_;
  // The task's while it runs.
  outer::LoneWork work_;
  std::optional<outer::OwnWork> taken_;
  const StepIndex last_;  // at most to be taken
  const std::unique_ptr<Runtime> runtime_;
  const std::unique_ptr<WaitQueue> queue_;
  // Under its lock:
  bool ends_ = false;
  bool over_ = true;
  std::unique_ptr<Task> task_;
};

/// What a site that was cut off has in hand until it takes part again. Where it does not, that is
/// told at the end.
struct InHand {
  InHand() = default;
  ~InHand();
  InHand(const InHand&) = delete;
  InHand& operator=(const InHand&) = delete;

  std::optional<outer::OwnWork> work;
  std::unique_ptr<LoneTraining> training;  // while there is one, the work is there
  bool told = false;                       // that nothing can be taken along
  LateStatus late;                         // how late the site has been so far

  /// The others are there.
  void end_training() {
    if (training) work = training->end();
    training.reset();
  }
};

}  // namespace isthmus::app
