// SPDX-License-Identifier: Apache-2.0
// A moment of a run, with what the longest chain of causes before it is made of. Adding a cause
// moves the moment; of two moments that must both have come, the later one keeps its chain. So the
// parts of the last moment add up to the length of the run. Plain values.
#pragma once

#include <cstdint>

namespace isthmus::plan {

struct PathTime {
  double at = 0;  // seconds since the start

  double compute_s = 0;
  double payload_s = 0;      // encoded values leaving on a link
  double header_s = 0;       // frame headers leaving on a link
  double below_line_s = 0;   // the same data leaving slower than at the line's rate
  double propagation_s = 0;  // data frames under way
  double commit_s = 0;       // DONE and COMMIT, leaving and under way

  double payload_bytes = 0;
  double header_bytes = 0;
  std::int64_t hops = 0;         // one-way delays of data
  std::int64_t commit_hops = 0;  // one-way delays of protocol messages

  void compute(double seconds) {
    at += seconds;
    compute_s += seconds;
  }
};

/// The later of two moments, with its chain; the first when they coincide.
[[nodiscard]] inline const PathTime& later(const PathTime& a, const PathTime& b) {
  return b.at > a.at ? b : a;
}

}  // namespace isthmus::plan
