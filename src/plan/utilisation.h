// SPDX-License-Identifier: Apache-2.0
// The compute-utilisation simulator: the share of time that a site computes, by method, model and
// rate of the link between two sites, without a run (arXiv:2501.18512, Table 4; arXiv:2503.09799
// Table 6 has the same question).
//
// An inner step of L layers with duration C is a graph of 3L - 1 computing nodes of C / (3L) each:
// per layer a forward, a backward for activations and a backward for parameters; the first layer
// has no backward for activations. Computing is one serial resource, the link another, first in,
// first out. If a layer is due, its reduction is queued at the end of its backward for parameters,
// and takes share * parameters * bits / rate: every value crosses once, as in a ring of two sites.
// The forward of that layer in the step `1 + overlap` later waits for it. Only the rate counts: no
// latency, no jitter, no cost of the outer step. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace isthmus {

struct UtilisationModel {
  double parameters = 0;
  int layers = 0;
  double step_s = 0;  // C
};

/// A part of one layer's values (usually all) that is due in some step.
struct LayerShare {
  int layer = 0;     // 0 .. L-1; the reduction begins and is awaited with it
  double share = 0;  // of the model's parameters
};

/// The due parts of each step: a repeated pattern of `period` steps.
struct UtilisationSchedule {
  struct Send {
    std::int64_t step = 0;           // 0 .. period-1, ascending
    std::vector<LayerShare> shares;  // last layer first, in the order of the backward pass
  };
  std::int64_t period = 1;
  std::vector<Send> sends;
  std::int64_t overlap = 0;  // inner steps from a reduction to its use; <= period
  double bits = 16;          // of a value on the wire
};

/// Share of time spent computing, in the repeated pattern. REQUIRES: layers >= 1, parameters,
/// step_s, bits and bits_per_s > 0, 0 <= overlap <= period.
[[nodiscard]] double compute_utilisation(const UtilisationModel& model,
                                         const UtilisationSchedule& schedule, double bits_per_s);

/// The rates to evaluate, bit/s: 50 from 0.1 to 1000 Gbit/s, evenly on a logarithmic scale.
[[nodiscard]] std::span<const double> bandwidth_grid();

/// The utilisations in the published tables.
inline constexpr std::array kUtilisationTargets = {0.5, 0.8, 0.9, 0.95, 0.99};

/// For each target the largest rate of the grid, bit/s, with utilisation below it: the rule that
/// reproduces the published tables. The last rate of the grid means "more than that"; nothing: even
/// the first rate reaches the target.
[[nodiscard]] std::array<std::optional<double>, kUtilisationTargets.size()> bandwidth_needed(
    const UtilisationModel& model, const UtilisationSchedule& schedule);

}  // namespace isthmus
