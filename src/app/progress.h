// SPDX-License-Identifier: Apache-2.0
// How far a long operation has come. On a terminal: a status block redrawn in place at most four
// times a second, with a bar, ETA, loss and a line per worker; otherwise a plain line each ten
// seconds; or JSON lines; or nothing. Everything goes to stderr. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/terminal.h"

namespace isthmus::app {

enum class ProgressMode { kAuto, kPlain, kNone, kJson };

struct WorkerProgress {
  std::string name;  // "east"
  std::int64_t step = 0;
  double compute_share = -1;  // share of its time so far spent computing; < 0: unknown
  double tokens_per_s = 0;
  std::string note;  // "waiting for west", or empty
};

/// One lane of a race (`demo`): runs one after another on a shared simulated clock.
struct LaneProgress {
  std::string name;  // "ddp"
  double fraction = 0;
  std::string text;  // "loss 2.41   3 min 20 s simulated"
};

struct ProgressUpdate {
  std::string activity = "step";  // "step", "tokenizing", "evaluating", ...
  std::int64_t done = 0;
  std::int64_t total = 0;          // 0: unknown, no bar and no ETA
  std::optional<double> fraction;  // of the work, where done / total is too coarse for bar and ETA
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

class Progress {
 public:
  /// Borrows `terminal` (stderr) for its life. Nothing is shown in the first two seconds, so short
  /// work stays silent.
  Progress(Terminal& terminal, ProgressMode mode);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// True when `update` would show something: ask first where making an update costs.
  [[nodiscard]] bool due() const;
  /// Shows `update` when due, else returns at once.
  void update(const ProgressUpdate& update);
  /// Takes the block away. The destructor does so too.
  void finish();

 private:
  void show_block(const ProgressUpdate& update);
  void show_line(const ProgressUpdate& update);
  void show_json(const ProgressUpdate& update);
  [[nodiscard]] std::string eta(const ProgressUpdate& update) const;

  Terminal& terminal_;
  ProgressMode mode_;
  StatusBlock block_;
  mutable std::mutex mutex_;
  double next_;                   // monotonic seconds at which something may be shown again
  std::int64_t first_done_ = -1;  // where a resumed run began, so that the ETA is its own
  double first_fraction_ = 0;
  double first_time_;
};

}  // namespace isthmus::app
