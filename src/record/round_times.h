// SPDX-License-Identifier: Apache-2.0
// Durations of single rounds, from a worker's begin until their result is final there, predicted or
// measured; and the comparison of both. Rounds are identified by fragment and send step. For long
// runs a sample is kept. Plain values; one thread.
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
  /// Most rounds kept of one fragment. Above it, every other one is dropped; the choice depends
  /// only on the send steps, so two objects with the same rounds keep the same ones. It uses a
  /// hash, since rounds may differ periodically (ddp commits every 16th).
  static constexpr std::size_t kMost = 1024;

  /// A repeated round replaces the earlier duration.
  void add(FragmentId fragment, StepIndex sent, double seconds);
  void add(const RoundTimes& others);

  struct Kept {
    std::uint64_t mask = 0;             // bits of the hash that are zero in kept rounds
    std::map<std::int64_t, double> at;  // by send step
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
  std::size_t rounds = 0;  // number compared
  RoundQuantiles predicted;
  RoundQuantiles measured;

  /// Of the medians: predicted / measured - 1. NaN if the measured median is 0 and the prediction
  /// is not.
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
  std::vector<RoundPair> pairs;           // by step, then fragment; if many, an even sample
};

/// The rounds in both. Empty (`all.rounds` = 0) if there are none.
[[nodiscard]] RoundComparison compare_rounds(const RoundTimes& predicted,
                                             const RoundTimes& measured);

/// A table for the terminal: a line a fragment (the longest ones if there are many), then one for
/// all. Empty if nothing was compared. `whose`: the worker's name.
[[nodiscard]] std::string render_rounds(const RoundComparison& comparison,
                                        const std::string& whose);

}  // namespace isthmus
