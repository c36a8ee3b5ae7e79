// SPDX-License-Identifier: Apache-2.0
// The compute-utilisation simulator: the share of its time that a site computes, by method, model
// and rate of the link between two sites, without running anything (arXiv:2501.18512,
// Table 4; arXiv:2503.09799 Table 6 asks the same).
//
// An inner step of L layers that takes C is a graph of 3L - 1 computing nodes of C / (3L) each: a
// forward, a backward for activations and a backward for parameters a layer; the first layer has no
// backward for activations. Computing is one serial resource, the link another, first in, first
// out. Where a layer is due, its reduction is queued when its backward for parameters ends, and
// takes share * parameters * bits / rate: every value crosses once, as in a ring of two sites. The
// forward of that layer in the step `1 + overlap` later waits for it. Only the rate counts: no
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

/// A part of one layer's values (as a rule all of them) that is due in some step.
struct LayerShare {
  int layer = 0;     // 0 .. L-1; its reduction begins and is awaited as that layer's
  double share = 0;  // of the model's parameters
};

/// What is due when: a pattern of `period` steps, over and over.
struct UtilisationSchedule {
  struct Send {
    std::int64_t step = 0;           // 0 .. period-1, ascending
    std::vector<LayerShare> shares;  // last layer first, as backward comes to them
  };
  std::int64_t period = 1;
  std::vector<Send> sends;
  std::int64_t overlap = 0;  // inner steps between a reduction's step and its last one; <= period
  double bits = 16;          // of a value on the wire
};

/// Share of the time spent computing, once the pattern repeats. REQUIRES: layers >= 1, parameters,
/// step_s, bits and bits_per_s > 0, 0 <= overlap <= period.
[[nodiscard]] double compute_utilisation(const UtilisationModel& model,
                                         const UtilisationSchedule& schedule, double bits_per_s);

/// Rates at which utilisation is looked at, bit/s: 50 from 0.1 to 1000 Gbit/s, evenly in the
/// logarithm.
[[nodiscard]] std::span<const double> bandwidth_grid();

/// Utilisations that the published tables ask for.
inline constexpr std::array kUtilisationTargets = {0.5, 0.8, 0.9, 0.95, 0.99};

/// For each target the largest rate of the grid, bit/s, at which utilisation is still below it: the
/// reporting rule that reproduces the published tables. The last rate of the grid means "more than
/// that"; none: even the first one reaches the target.
[[nodiscard]] std::array<std::optional<double>, kUtilisationTargets.size()> bandwidth_needed(
    const UtilisationModel& model, const UtilisationSchedule& schedule);

}  // namespace isthmus
