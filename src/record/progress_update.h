// SPDX-License-Identifier: Apache-2.0
// The progress of a run, from its record, and the interface that shows it to people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace isthmus::app {

struct WorkerProgress {
  std::string name;  // "east"
  std::int64_t step = 0;
  double compute_share = -1;  // share of its time so far spent computing; < 0: unknown
  double tokens_per_s = 0;
  std::string note;  // "waiting for west", or empty
};

/// One lane of a race (`demo`): runs in sequence on a shared simulated clock.
struct LaneProgress {
  std::string name;  // "ddp"
  double fraction = 0;
  std::string text;  // "loss 2.41   3 min 20 s simulated"
};

struct ProgressUpdate {
  std::string activity = "step";  // "step", "tokenizing", "evaluating", ...
  std::int64_t done = 0;
  std::int64_t total = 0;          // 0: unknown, no bar and no ETA
  std::optional<double> fraction;  // of the work, if done / total is too coarse for bar and ETA
  double loss = 0;                 // 0: none yet
  std::optional<double> eval_loss;
  std::int64_t eval_step = 0;
  double tokens_per_s = 0;            // all workers
  std::optional<double> simulated_s;  // now on the simulated clock
  std::uint64_t bytes_sent = 0;       // between sites, all workers
  int rounds = 0;
  double checkpoint_age_s = -1;  // < 0: none yet
  std::vector<WorkerProgress> workers;
  std::vector<LaneProgress> lanes;
};

/// Shows updates where and when it chooses. Any thread.
class ProgressView {
 public:
  virtual ~ProgressView() = default;
  /// True if `update` would show something: ask first if making an update is costly.
  [[nodiscard]] virtual bool due() const = 0;
  /// Shows `update` when due, else returns at once.
  virtual void update(const ProgressUpdate& update) = 0;
};

}  // namespace isthmus::app
