// SPDX-License-Identifier: Apache-2.0
// The ways in which the sites of a file could make a mean over its [[link]]s, each predicted and
// played in virtual time. For `bench collectives CONFIG`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/config.h"
#include "plan/prediction.h"
#include "transport/exchange/tree/tree_plan.h"

namespace isthmus::app {

/// A way to make the mean. Ways of equal `bits` give the same result, to the bit.
struct Way {
  std::string name;
  std::string bits;
  ReductionKind kind = ReductionKind::kReduce;
  std::vector<std::uint32_t> shares = {};
  std::vector<std::uint32_t> groups = {};
  std::optional<TreeShape> along = {};  // a ring or tree, which no run takes
  bool of_table = false;                // a run takes it by a table alone
};

struct TimedWay {
  Way way;
  double predicted_s = 0;
  double simulated_s = 0;
  std::uint64_t thinnest_bytes = 0;  // one way over a slowest link, the most of those
  double shared_lines_s = 0;         // at least, were all links of a site one line
};

/// What is exchanged, and over what.
struct Question {
  std::vector<std::string> sites;
  PredictionInput round;    // of a vector of `values`, or of so few ...
  std::int64_t values = 0;  // ... that links count their bytes as if they were all
  std::uint64_t seed = 0;
};

/// How many values a run of this file exchanges at a time: each size once, rising.
[[nodiscard]] std::vector<std::int64_t> sizes_exchanged(const Config& config);

/// One round of so many values. REQUIRES: two sites, links between them all.
[[nodiscard]] Question question_of(const Config& config, std::int64_t values);

/// Those that runs take, and such that are there to be seen beside them: gather, groups, a ring, a
/// tree.
[[nodiscard]] std::vector<Way> ways_of(const Question& question, const Config& config);
/// Of those the ones that a table of ways may choose from: a reduce in one level. The first has
/// even shares.
[[nodiscard]] std::vector<Way> ways_of_reduce(const Question& question, const Config& config);

/// The shares of this round in a run of this file that reduces in one level.
[[nodiscard]] std::vector<std::uint32_t> shares_of_run(const Question& question,
                                                       const Config& config);

/// The closed form of one round, nothing else on the links, until all know it committed.
[[nodiscard]] double predicted_s(const Question& question, const Way& way);
/// Predicted and played.
[[nodiscard]] TimedWay timed(const Question& question, const Way& way);

}  // namespace isthmus::app
