// SPDX-License-Identifier: Apache-2.0
// What all workers completed, as lines of metrics.jsonl, totals for summary.json and the status
// block. Called by the RunBoard, one call at a time.
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

/// What the closing round has cost (final_sync = "full"): a round for each fragment whose window
/// was open after the last step. Bytes are those of one worker.
struct ClosingTotals {
  std::int64_t rounds = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t wire_bytes = 0;
  double wait_s = 0;
};

/// Sums over the whole run, earlier sessions of a resumed run included.
struct RunTotals {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  std::int64_t rounds = 0;
  ClosingTotals closing;                     // of `rounds` and of the bytes
  std::vector<std::uint64_t> payload_bytes;  // sent, by worker; the surrogate's when declared
  std::vector<std::uint64_t> wire_bytes;
  std::vector<double> compute_s;  // by worker, on the run's clock
  double clock_s = 0;             // run's clock: simulated seconds, or real ones
  double wall_s = 0;
  double train_loss = 0;
  std::optional<double> eval_loss;
  std::int64_t eval_step = 0;
  Duration measured_step{0};  // calibrated length of an inner step, replayed after a resume

  /// Computing of a step, by worker, as they did it side by side.
  [[nodiscard]] std::vector<Duration> mean_steps() const;

  void save(StateWriter& writer) const;
  void load(StateReader& reader);
};

/// An evaluation, and what the run had cost by then.
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
    StatusBoard* status = nullptr;                   // told what the lines say; may be null
    std::size_t self = 0;                            // the worker whose waits are told
    std::vector<EvaluationSource> sources = {};      // of evaluations; empty: one
    /// `evals` has all of them, for who lays runs side by side and keeps their curves; else the
    /// last one alone, so that a run may go on for ever.
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
  /// A rank of this process's mesh has become slow, or is no longer, found in step t.
  void rank(StepIndex t, const RankFinding& finding);
  /// Blocks until every line so far is on the disk.
  void sync();
  /// Last line: status as in manifest.json. `late`: of this site, where rounds have a deadline.
  void end(const std::string& status, const std::string& cause,
           const std::optional<LateStatus>& late);

  /// Evaluations of this session so far, as `keeps_evals` says; all are in metrics.jsonl.
  [[nodiscard]] const std::vector<EvalRecord>& evals() const { return evals_; }

 private:
  [[nodiscard]] JsonLine line(const char* kind) const;
  void append(const JsonLine& line);
  void add_clock(JsonLine& line, TimePoint now) const;
  [[nodiscard]] std::uint64_t scaled(std::uint64_t bytes) const;
  void rounds(StepIndex t, const std::vector<StepPost>& posts);
  void rounds_that_slip(StepIndex t, const std::vector<StepPost>& posts);
  /// The line of a round that all have applied by step t. `reports`: by rank.
  void round(StepIndex t, const std::map<int, RoundReport>& reports);
  void show(StepIndex t, const std::vector<StepPost>& posts, double tokens_per_s);

  Options options_;
  std::mutex lines_;  // a worker writes a checkpoint's line while the board may write others
  JsonLinesFile& metrics_;
  ProgressView* progress_;
  RunTotals& totals_;
  RunTotals before_;  // what earlier sessions of the run, and of each worker, had summed up
  /// Applied by some workers and not yet by all, by (send step, fragment): reports by rank.
  std::map<std::pair<StepIndex, FragmentId>, std::map<int, RoundReport>> slipping_;
  std::vector<EvalRecord> evals_;
  double started_;
  double last_step_;
  double last_checkpoint_ = -1;
  double gradient_norm_ = 0;  // mean of the workers that took the last step
};

}  // namespace isthmus::app
