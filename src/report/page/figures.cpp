// SPDX-License-Identifier: Apache-2.0
#include "report/page/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "report/data/text.h"

namespace isthmus::report {
namespace {

double first_of(double preferred, double otherwise) {
  return std::isnan(preferred) ? otherwise : preferred;
}

double mean_of(const std::vector<double>& values) {
  return values.empty() ? kNothing
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

double sum_over_rounds(const RunData& run, double RoundRecord::*field) {
  double sum = 0;
  for (const RoundRecord& round : run.rounds) {
    sum += std::isfinite(round.*field) ? round.*field : 0;
  }
  return run.train.empty() ? kNothing : sum;
}

double compute_per_worker(const RunData& run) {
  if (!run.summary.compute_s.empty()) {
    return mean_of(run.summary.compute_s);
  }
  if (!std::isnan(run.spans_cut_s)) {
    return kNothing;
  }
  std::vector<double> seconds;
  for (const WorkerTime& time : run.times) {
    seconds.push_back(time.of(SpanKind::kCompute));
  }
  return mean_of(seconds);
}

std::string status_of(const RunData& run) {
  if (run.end_status.empty()) {
    return run.train.empty() ? "empty" : "in progress";
  }
  return run.end_status;
}

/// Bytes one worker had sent after each step's rounds, as (step, bytes so far), steps ascending.
std::vector<std::pair<std::int64_t, double>> bytes_by_step(const RunData& run) {
  std::vector<std::pair<std::int64_t, double>> sent;
  for (const RoundRecord& round : run.rounds) {
    sent.emplace_back(round.sent, std::isfinite(round.wire_bytes) ? round.wire_bytes : 0);
  }
  std::sort(sent.begin(), sent.end());
  double sum = 0;
  for (auto& [step, bytes] : sent) {
    sum += bytes;
    bytes = sum;
  }
  return sent;
}

/// x of each training step, in the order of run.train; NaN where unknown.
std::vector<double> step_positions(const RunData& run, Against against) {
  std::vector<double> x;
  x.reserve(run.train.size());
  if (against == Against::kBytes) {
    const auto sent = bytes_by_step(run);
    std::size_t next = 0;
    double bytes = 0;
    for (const TrainPoint& point : run.train) {
      for (; next < sent.size() && sent[next].first <= point.step; ++next) {
        bytes = sent[next].second;
      }
      x.push_back(bytes > 0 ? bytes : kNothing);  // nothing sent has no place on a log axis
    }
    return x;
  }
  const double start = run.train.empty() ? 0 : run.train.front().unix_s;
  for (const TrainPoint& point : run.train) {
    x.push_back(against == Against::kSteps       ? static_cast<double>(point.step)
                : against == Against::kSimulated ? point.simulated_s
                                                 : point.unix_s - start);
  }
  return x;
}

}  // namespace

RunFigures figures_of(const RunData& run) {
  const Summary& summary = run.summary;
  RunFigures figures{.steps = summary.steps,
                     .tokens = summary.tokens,
                     .train_loss = summary.final_train_loss,
                     .eval_loss = summary.final_eval_loss,
                     .payload_bytes = mean_of(summary.payload_bytes),
                     .wire_bytes = mean_of(summary.wire_bytes),
                     .simulated_s = summary.simulated_s,
                     .wall_s = summary.wall_s,
                     .utilisation = summary.compute_utilisation,
                     .status = status_of(run)};
  figures.payload_bytes =
      first_of(figures.payload_bytes, sum_over_rounds(run, &RoundRecord::payload_bytes));
  figures.wire_bytes = first_of(figures.wire_bytes, sum_over_rounds(run, &RoundRecord::wire_bytes));
  if (!run.train.empty()) {
    const TrainPoint& last = run.train.back();
    figures.steps = first_of(figures.steps, static_cast<double>(last.step));
    figures.tokens = first_of(figures.tokens, last.tokens);
    figures.train_loss = first_of(figures.train_loss, last.loss);
    figures.simulated_s = first_of(figures.simulated_s, last.simulated_s);
    figures.wall_s = first_of(figures.wall_s, last.unix_s - run.train.front().unix_s);
  }
  if (!run.evals.empty()) {
    figures.eval_loss = first_of(figures.eval_loss, run.evals.back().loss);
  }
  if (!clock_words(run).simulated) {
    figures.simulated_s = kNothing;
  }
  const double total = first_of(figures.simulated_s, figures.wall_s);
  if (std::isnan(figures.utilisation) && total > 0) {
    figures.utilisation = compute_per_worker(run) / total;
  }
  return figures;
}

RunClockWords clock_words(const RunData& run) {
  RunClockWords words;
  const auto clock = run.manifest.words.find("clock");
  const bool any_simulated_second =
      std::any_of(run.train.begin(), run.train.end(),
                  [](const TrainPoint& point) { return std::isfinite(point.simulated_s); });
  words.simulated = run.manifest.simulated.value_or(any_simulated_second) ||
                    (clock != run.manifest.words.end() && clock->second == "virtual");
  words.surrogate = run.manifest.surrogate.has_value();
  if (words.surrogate) {
    words.basis = fmt::format("{} parameters at {} a step",
                              format_short_count(run.manifest.surrogate->parameters),
                              format_seconds(run.manifest.surrogate->step_s));
    return words;
  }
  const double steps = run.train.empty() ? kNothing : static_cast<double>(run.train.back().step);
  const double per_step = compute_per_worker(run) / steps;
  words.basis = std::isfinite(per_step) ? format_seconds(per_step) + " of compute a step"
                                        : "the step time of the run's configuration";
  return words;
}

std::vector<WorkerShare> worker_shares(const RunData& run, const RunFigures& figures) {
  const double total = first_of(first_of(figures.simulated_s, figures.wall_s), run.last_span_end_s);
  const std::vector<double>& compute = run.summary.compute_s;
  const bool all_spans = std::isnan(run.spans_cut_s);
  // In virtual time every wait is a span; a real run may not have noted any.
  const bool waits_noted =
      clock_words(run).simulated ||
      std::any_of(run.times.begin(), run.times.end(),
                  [](const WorkerTime& time) { return time.of(SpanKind::kWait) > 0; });
  std::vector<WorkerShare> shares;
  for (std::size_t w = 0; w < std::max(run.times.size(), compute.size()); ++w) {
    const WorkerTime time = w < run.times.size() ? run.times[w] : WorkerTime{};
    shares.push_back({.compute_s = w < compute.size() ? compute[w]
                                   : all_spans        ? time.of(SpanKind::kCompute)
                                                      : kNothing,
                      .wait_s = all_spans && waits_noted && w < run.times.size()
                                    ? time.of(SpanKind::kWait)
                                    : kNothing,
                      .total_s = total});
  }
  return shares;
}

std::vector<Point> train_series(const RunData& run, Against against) {
  const std::vector<double> x = step_positions(run, against);
  std::vector<Point> points;
  points.reserve(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(x[i])) {
      points.push_back({x[i], run.train[i].loss});
    }
  }
  return points;
}

std::vector<Point> eval_series(const RunData& run, Against against) {
  const std::vector<double> x = step_positions(run, against);
  std::vector<Point> points;
  for (const EvalPoint& eval : run.evals) {
    // The step's own place; an evaluation before the first step has none.
    const auto at = std::lower_bound(
        run.train.begin(), run.train.end(), eval.step,
        [](const TrainPoint& point, std::int64_t step) { return point.step < step; });
    if (at == run.train.end() || at->step != eval.step) {
      continue;
    }
    const double position = x[static_cast<std::size_t>(at - run.train.begin())];
    if (std::isfinite(position)) {
      points.push_back({position, eval.loss});
    }
  }
  return points;
}

std::vector<Point> decimate(const std::vector<Point>& points, std::size_t limit) {
  if (points.size() <= limit) {
    return points;
  }
  const std::size_t buckets = std::max<std::size_t>(limit / 2, 1);
  std::vector<Point> kept;
  kept.reserve(limit);
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::size_t begin = bucket * points.size() / buckets;
    const std::size_t end = (bucket + 1) * points.size() / buckets;
    std::size_t low = begin;
    std::size_t high = begin;
    for (std::size_t i = begin; i < end; ++i) {
      const bool finite = std::isfinite(points[i].y);
      if (finite && !(points[i].y >= points[low].y)) {
        low = i;
      }
      if (finite && !(points[i].y <= points[high].y)) {
        high = i;
      }
    }
    kept.push_back(points[std::min(low, high)]);
    if (low != high) {
      kept.push_back(points[std::max(low, high)]);
    }
  }
  return kept;
}

}  // namespace isthmus::report
