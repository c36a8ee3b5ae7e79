// SPDX-License-Identifier: Apache-2.0
// How long single rounds take, from a worker's begin until their result is final at it, predicted
// or measured; and the two laid over each other. Rounds are known by fragment and step of sending.
// Of long runs a sample is kept. Plain values; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "isthmus/types.h"

namespace isthmus {

class RoundTimes {
 public:
  /// Of one fragment. With more, every other one goes: which stay depends on their steps alone, so
  /// two of these that were told of the same rounds keep the same. They are drawn by a hash, since
  /// rounds may differ by a period of their own (ddp commits every 16th).
  static constexpr std::size_t kMost = 1024;

  /// One that is told of again counts as told last.
  void add(FragmentId fragment, StepIndex sent, double seconds);
  void add(const RoundTimes& others);

  struct Kept {
    std::uint64_t mask = 0;             // bits of the hash that are zero in what is kept
    std::map<std::int64_t, double> at;  // by step of sending
  };
  [[nodiscard]] const std::map<int, Kept>& by_fragment() const { return by_fragment_; }

 private:
  std::map<int, Kept> by_fragment_;
};

struct RoundQuantiles {
  double median_s = 0;
  double p95_s = 0;  // by nearest rank
};

/// A fragment's rounds, or all.
struct RoundsCompared {
  int fragment = -1;       // -1: of all fragments
  std::size_t rounds = 0;  // that are compared
  RoundQuantiles predicted;
  RoundQuantiles measured;

  /// Of the medians: predicted / measured - 1. NaN where nothing but the prediction took time.
  [[nodiscard]] double error() const;
};

struct RoundPair {
  int fragment = 0;
  std::int64_t sent = 0;
  double predicted_s = 0;
  double measured_s = 0;
};

struct RoundComparison {
  RoundsCompared all;
  std::vector<RoundsCompared> fragments;  // by number
  std::vector<RoundPair> pairs;           // by step, then fragment; some, evenly chosen, where many
};

/// Of the rounds that both know. Empty (`all.rounds` = 0) where there are none.
[[nodiscard]] RoundComparison compare_rounds(const RoundTimes& predicted,
                                             const RoundTimes& measured);

/// A table for the terminal: a line a fragment, the longest ones where there are many, then one of
/// all. Empty where nothing was compared. `whose`: the worker's name.
[[nodiscard]] std::string render_rounds(const RoundComparison& comparison,
                                        const std::string& whose);

}  // namespace isthmus
