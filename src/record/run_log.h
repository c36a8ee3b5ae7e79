// SPDX-License-Identifier: Apache-2.0
// Completed steps and evaluations as lines of metrics.jsonl, totals for summary.json and the status
// block. Called by the LocalStepCoordinator, one call at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/rank_finding.h"
#include "isthmus/config.h"
#include "isthmus/state.h"
#include "record/progress_update.h"
#include "record/run_directory.h"
#include "record/run_events.h"
#include "record/run_status.h"
#include "record/tensorboard_sink.h"

namespace isthmus::app {

class StatusBoard;

/// The cost of the closing round (final_sync = "full"): a round for each fragment with an open
/// window after the last step. Bytes are those of one worker.
struct ClosingTotals {
  std::int64_t rounds = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t wire_bytes = 0;
  double wait_s = 0;
};

/// Sums over the whole run, including earlier sessions of a resumed run.
struct RunTotals {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  std::int64_t rounds = 0;
  ClosingTotals closing;                     // included in `rounds` and in the bytes
  std::vector<std::uint64_t> payload_bytes;  // sent, by worker; the surrogate's when declared
  std::vector<std::uint64_t> wire_bytes;
  std::vector<double> compute_s;  // by worker, on the run's clock
  double clock_s = 0;             // run's clock: simulated seconds, or real ones
  double wall_s = 0;
  double train_loss = 0;
  std::optional<double> eval_loss;
  std::int64_t eval_step = 0;
  Duration measured_step{0};  // calibrated length of an inner step, replayed after a resume

  /// Mean computing time of a step, by worker, measured while all workers compute.
  [[nodiscard]] std::vector<Duration> mean_steps() const;

  void save(StateWriter& writer) const;
  void load(StateReader& reader);
};

/// An evaluation, and the run's cost up to it.
struct EvalRecord {
  std::int64_t step = 0;
  double loss = 0;
  double clock_s = 0;
  std::uint64_t payload_bytes = 0;  // sent by the worker that sent most
  std::uint64_t wire_bytes = 0;
};

class MetricsLog final : public RunLog {
 public:
  struct Options {
    const Config& config;
    std::int64_t total_steps = 0;
    bool simulated = false;
    double byte_scale = 1;  // bytes of the declared model per byte of this one
    std::string lane;       // demo: name of this run in the status block, or empty
    std::vector<LaneProgress> finished_lanes;        // demo: the runs before this one
    std::function<void(std::int64_t step)> on_step;  // may be empty
    std::unique_ptr<TensorBoardSink> tensorboard;    // may be null
    StatusBoard* status = nullptr;                   // receives the lines; may be null
    std::size_t self = 0;                            // the worker whose waits are shown
    std::vector<EvaluationSource> sources = {};      // of evaluations; empty: one
    /// `evals` has all evaluations, for callers that compare runs and keep their curves; otherwise
    /// only the last one, so that a run may continue forever.
    bool keeps_evals = false;
  };
  /// Borrows everything for its life. `progress` may be null.
  MetricsLog(Options options, JsonLinesFile& metrics, ProgressView* progress, RunTotals& totals);

  /// First line of a session.
  void begin(const Manifest& manifest);
  void step(StepIndex t, const std::vector<StepPost>& posts) override;
  void eval(const EvalResult& result) override;
  void event(const RunEvent& event) override;
  void checkpoint(StepIndex t, std::uint64_t bytes, double seconds);
  /// A rank of this process's mesh has become slow, or normal again, as found in step t.
  void rank(StepIndex t, const RankFinding& finding);
  /// Blocks until every line so far is on the disk.
  void sync();
  /// Last line: status as in manifest.json. `late`: of this site, if rounds have a deadline.
  void end(const std::string& status, const std::string& cause,
           const std::optional<LateStatus>& late);

  /// This session's evaluations so far, as `keeps_evals` says; metrics.jsonl has all.
  [[nodiscard]] const std::vector<EvalRecord>& evals() const { return evals_; }

 private:
  [[nodiscard]] JsonLine line(const char* kind) const;
  void append(const JsonLine& line);
  void add_clock(JsonLine& line, TimePoint now) const;
  [[nodiscard]] std::uint64_t scaled(std::uint64_t bytes) const;
  void rounds(StepIndex t, const std::vector<StepPost>& posts);
  void rounds_that_slip(StepIndex t, const std::vector<StepPost>& posts);
  void merges(StepIndex t, const std::vector<StepPost>& posts);
  /// The line of a round that all workers have applied by step t, or of a merge that some have.
  /// `reports`: by rank.
  void round(StepIndex t, const std::map<int, RoundReport>& reports);
  void show(StepIndex t, const std::vector<StepPost>& posts, double tokens_per_s);

  Options options_;
  std::mutex lines_;  // a worker writes a checkpoint's line while the board may write others
  JsonLinesFile& metrics_;
  ProgressView* progress_;
  RunTotals& totals_;
  RunTotals before_;  // sums of earlier sessions of the run and of each worker
  /// Applied by some workers and not yet by all, by send step and fragment: reports by rank.
  std::map<std::pair<StepIndex, FragmentId>, std::map<int, RoundReport>> slipping_;
  std::int64_t last_merge_ = 0;  // the last one of this session that has a line
  std::vector<EvalRecord> evals_;
  double started_;
  double last_step_;
  double last_checkpoint_ = -1;
  double gradient_norm_ = 0;  // mean of the workers that took the last step
};

}  // namespace isthmus::app
