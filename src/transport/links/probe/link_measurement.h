// SPDX-License-Identifier: Apache-2.0
// The measurement of the link between two members, computed from echoes and arrivals: pure
// functions and values, any thread. link_probe.h measures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/types.h"

namespace isthmus {

/// Round trips of small echoes on an otherwise idle link.
struct EchoSummary {
  std::uint32_t samples = 0;
  Duration least{0};
  Duration p50{0};
  Duration p99{0};
  /// J such that echoes would spread like these if each were late by two independent uniform times
  /// in [0, J], one a direction. Their sum has the quantiles J sqrt(2q) and 2J - J sqrt(2(1-q)), so
  /// p90 - p10 = (2 - 2 sqrt(0.2)) J; delays rarer than one in ten do not count.
  Duration jitter{0};
  bool operator==(const EchoSummary&) const = default;
};

/// The smallest sample that is not exceeded by at least a share `q` of all samples. REQUIRES:
/// samples, q in (0, 1].
[[nodiscard]] Duration quantile(std::span<const Duration> samples, double q);
/// REQUIRES: samples.
[[nodiscard]] EchoSummary summarise_echoes(std::span<const Duration> samples);

/// A transfer as its receiver saw it, on the receiver's clock.
struct Arrivals {
  std::uint64_t bytes = 0;
  Duration elapsed{0};             // first to last arrival
  std::uint64_t steady_bytes = 0;  // that arrived in the second half of that time
  Duration steady{0};              // from the first arrival of that half to the last
  bool operator==(const Arrivals&) const = default;
};
/// Bits per second after the transfer's start-up; nothing when it was too short to tell.
[[nodiscard]] std::optional<double> steady_rate(const Arrivals& arrivals);

/// Collects arrivals in bounded memory: when there are too many, every other one is dropped,
/// repeatedly.
class ArrivalSeries {
 public:
  /// REQUIRES: times in order.
  void add(TimePoint at, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t bytes() const { return total_; }
  [[nodiscard]] Arrivals summary() const;

 private:
  struct Point {
    TimePoint at;
    std::uint64_t total = 0;  // including this one
  };
  static constexpr std::size_t kMostPoints = 4096;
  std::vector<Point> points_;  // always including the first one
  Point last_;
  std::uint64_t total_ = 0;
  std::uint64_t seen_ = 0;
  std::uint64_t every_ = 1;  // arrivals per point
};

/// Rate with a number of parallel connections.
struct StreamRate {
  std::uint32_t streams = 1;
  double bits_per_s = 0;
  bool operator==(const StreamRate&) const = default;
};
inline constexpr double kEnoughOfBest = 0.9;
/// The fewest streams that reach 90 % of the best rate. REQUIRES: rates.
[[nodiscard]] std::uint32_t enough_streams(std::span<const StreamRate> rates);
/// Whether more streams than those of `rates`, in order of their number, are worth trying: not when
/// neither of the last two numbers was better, by a tenth, than the best before it.
[[nodiscard]] bool more_streams_may_help(std::span<const StreamRate> rates);

/// Segments that TCP retransmitted: losses on the path, including those in queues that the
/// transfers filled, and a few retransmissions without need.
struct Retransmits {
  std::uint64_t segments = 0;
  std::uint64_t repeated = 0;
  [[nodiscard]] double share() const {
    return segments == 0 ? 0 : static_cast<double>(repeated) / static_cast<double>(segments);
  }
  bool operator==(const Retransmits&) const = default;
};

/// One direction of a link.
struct DirectionMeasurement {
  double bits_per_s = 0;                   // steady goodput with `streams` connections
  std::uint32_t streams = 0;               // fewest for 90 % of the best rate; 0: not measured
  std::vector<StreamRate> scan;            // by streams
  std::uint64_t bytes = 0;                 // sent to measure it
  std::optional<Retransmits> retransmits;  // nothing: not known to the system
  std::optional<Duration> loaded_rtt;      // TCP's round trip while the link was full, or nothing
  std::string congestion;                  // of the sender; empty: not known
  bool operator==(const DirectionMeasurement&) const = default;
};

/// The link between members a < b.
struct PairMeasurement {
  WorkerId a;
  WorkerId b;
  EchoSummary echo;
  DirectionMeasurement up;    // a to b
  DirectionMeasurement down;  // b to a
  bool operator==(const PairMeasurement&) const = default;
};

/// What is impossible in it, in words; empty: nothing. For measurements reported by others.
[[nodiscard]] std::string fault_of(const EchoSummary& echo);
[[nodiscard]] std::string fault_of(const DirectionMeasurement& direction);
[[nodiscard]] std::string fault_of(const PairMeasurement& pair);
/// The same, if the sender has sent `bytes` and received the answer `took` later, on its own clock.
[[nodiscard]] std::string fault_of(const Arrivals& arrivals, std::uint64_t bytes, Duration took);

}  // namespace isthmus
