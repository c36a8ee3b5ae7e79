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

/// What lies between two moments of a chain, `times` times over.
[[nodiscard]] inline PathTime repeated(const PathTime& from, const PathTime& to,
                                       std::int64_t times) {
  const auto n = static_cast<double>(times);
  return {.at = n * (to.at - from.at),
          .compute_s = n * (to.compute_s - from.compute_s),
          .payload_s = n * (to.payload_s - from.payload_s),
          .header_s = n * (to.header_s - from.header_s),
          .below_line_s = n * (to.below_line_s - from.below_line_s),
          .propagation_s = n * (to.propagation_s - from.propagation_s),
          .processor_s = n * (to.processor_s - from.processor_s),
          .commit_s = n * (to.commit_s - from.commit_s),
          .payload_bytes = n * (to.payload_bytes - from.payload_bytes),
          .header_bytes = n * (to.header_bytes - from.header_bytes),
          .hops = times * (to.hops - from.hops),
          .commit_hops = times * (to.commit_hops - from.commit_hops)};
}

/// The same chain after `more`.
[[nodiscard]] inline PathTime after(const PathTime& more, const PathTime& time) {
  PathTime sum = more;
  sum.at += time.at;
  sum.compute_s += time.compute_s;
  sum.payload_s += time.payload_s;
  sum.header_s += time.header_s;
  sum.below_line_s += time.below_line_s;
  sum.propagation_s += time.propagation_s;
  sum.processor_s += time.processor_s;
  sum.commit_s += time.commit_s;
  sum.payload_bytes += time.payload_bytes;
  sum.header_bytes += time.header_bytes;
  sum.hops += time.hops;
  sum.commit_hops += time.commit_hops;
  return sum;
}

/// The later of two moments, with its chain; the first when they coincide.
[[nodiscard]] inline const PathTime& later(const PathTime& a, const PathTime& b) {
  return b.at > a.at ? b : a;
}

}  // namespace isthmus::plan
