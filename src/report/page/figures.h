// SPDX-License-Identifier: Apache-2.0
// The key figures of a run, and the series of its charts.
//
// summary.json is used if it exists; a run in progress is summed up from its metrics. Pure
// functions of RunData.
#pragma once

#include <string>
#include <vector>

#include "report/data/run_data.h"

namespace isthmus::report {

struct RunFigures {
  double steps = kNothing;
  double tokens = kNothing;
  double train_loss = kNothing;
  double eval_loss = kNothing;
  double payload_bytes = kNothing;  // sent by one worker (mean over the workers)
  double wire_bytes = kNothing;     // the same, with headers and protocol messages
  double simulated_s = kNothing;
  double wall_s = kNothing;
  double utilisation = kNothing;  // compute share of the run's clock, mean over the workers
  std::string status;             // "completed", "in progress", ...
};

[[nodiscard]] RunFigures figures_of(const RunData& run);

/// The description of the run's clock in the page.
struct RunClockWords {
  bool simulated = false;
  bool surrogate = false;
  std::string basis;  // the basis of simulated seconds: "1 B parameters at 900 ms a step"
};
[[nodiscard]] RunClockWords clock_words(const RunData& run);

/// Compute, wait and the rest of each worker's time, in seconds of the run's clock; kNothing if
/// unknown.
struct WorkerShare {
  double compute_s = 0;
  double wait_s = 0;
  double total_s = 0;
  [[nodiscard]] double utilisation() const { return total_s > 0 ? compute_s / total_s : kNothing; }
};
[[nodiscard]] std::vector<WorkerShare> worker_shares(const RunData& run, const RunFigures& figures);

struct Point {
  double x = 0;
  double y = 0;  // NaN breaks the line
};

enum class Against { kSteps, kBytes, kSimulated, kWall };

/// Training losses and validation losses against steps, wire bytes that one worker had sent by
/// then, or seconds since the start. Points with an unknown x are left out.
[[nodiscard]] std::vector<Point> train_series(const RunData& run, Against against);
[[nodiscard]] std::vector<Point> eval_series(const RunData& run, Against against);

/// At most `limit` (>= 2) points: each of limit/2 equal sections is reduced to its lowest and its
/// highest point, so peaks stay. Non-finite points stay as breaks.
[[nodiscard]] std::vector<Point> decimate(const std::vector<Point>& points, std::size_t limit);

}  // namespace isthmus::report
