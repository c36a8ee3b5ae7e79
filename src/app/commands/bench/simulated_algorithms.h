// SPDX-License-Identifier: Apache-2.0
// The algorithms by which the sites of a file could compute a mean over the [[link]]s, each
// predicted and simulated. For `bench collectives CONFIG`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isthmus/config.h"
#include "plan/prediction.h"

namespace isthmus::app {

/// An algorithm for the mean. Algorithms with equal `bits` give bit-identical results.
struct Way {
  std::string name;
  std::string bits;
  ReductionKind kind = ReductionKind::kReduce;
  std::vector<std::uint32_t> shares = {};
  std::vector<std::uint32_t> groups = {};
  std::vector<int> ring = {};  // the members along a ring; empty: no ring
  bool compared_only = false;  // no run uses it
};

struct TimedWay {
  Way way;
  double predicted_s = 0;
  double simulated_s = 0;
  std::uint64_t thinnest_bytes = 0;  // most bytes in one direction of a slowest link
  double shared_lines_s = 0;         // lower bound if all links of a site share one line
};

/// The size of the exchange, and its links.
struct Question {
  std::vector<std::string> sites;
  PredictionInput round;    // of a vector of `values`, or of a smaller one ...
  std::int64_t values = 0;  // ... whose bytes the links scale up to `values`
  double byte_scale = 1;    // and those to a declared model ([surrogate])
  std::uint64_t seed = 0;
};

/// The largest number of values that a run of this file exchanges at a time.
[[nodiscard]] std::int64_t largest_exchanged(const Config& config);

/// One round of `values` values. REQUIRES: two sites, links between all sites.
[[nodiscard]] Question question_of(const Config& config, std::int64_t values);

/// The algorithms of runs, and others for comparison: gather, groups, stars, a ring.
[[nodiscard]] std::vector<Way> ways_of(const Question& question, const Config& config);
/// The closed form for one round, alone on the links, until all sites know its commit.
[[nodiscard]] double predicted_s(const Question& question, const Way& way);
/// Predicted and simulated; blocks while the round is simulated. THROWS: PeerError when the round
/// fails.
[[nodiscard]] TimedWay timed(const Question& question, const Way& way);

}  // namespace isthmus::app
