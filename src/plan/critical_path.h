// SPDX-License-Identifier: Apache-2.0
// A moment of a run, with the composition of the longest chain of causes before it. Adding a cause
// moves the moment; of two required moments the later one keeps its chain. So the parts of the last
// moment add up to the length of the run. Plain values.
#pragma once

#include <cstdint>

namespace isthmus::plan {

struct PathTime {
  double at = 0;  // seconds since the start

  double compute_s = 0;
  double payload_s = 0;      // time to send encoded values on a link
  double header_s = 0;       // time to send frame headers on a link
  double below_line_s = 0;   // extra sending time of the same data below the line's rate
  double propagation_s = 0;  // propagation of data frames
  double processor_s = 0;    // moving and summing values, where the processor is slower than links
  double commit_s = 0;       // sending and propagation of DONE and COMMIT

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
