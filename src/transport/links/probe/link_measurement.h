// SPDX-License-Identifier: Apache-2.0
// What is measured of the link between two members, and how it follows from echoes and arrivals:
// pure functions and values, any thread. Who measures is link_probe.h.
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
  /// J such that echoes, each late by two independent uniform times in [0, J] (one a direction),
  /// would spread like these. Their sum has the quantiles J sqrt(2q) and 2J - J sqrt(2(1-q)), so
  /// p90 - p10 = (2 - 2 sqrt(0.2)) J; what is rarer than one in ten does not count.
  Duration jitter{0};
  bool operator==(const EchoSummary&) const = default;
};

/// The smallest sample that at least a share `q` of all do not exceed. REQUIRES: samples, q in
/// (0, 1].
[[nodiscard]] Duration quantile(std::span<const Duration> samples, double q);
/// REQUIRES: samples.
[[nodiscard]] EchoSummary summarise_echoes(std::span<const Duration> samples);

/// A transfer as its receiver saw it, on the receiver's clock.
struct Arrivals {
  std::uint64_t bytes = 0;
  Duration elapsed{0};             // first to last arrival
  std::uint64_t steady_bytes = 0;  // that came in the second half of that time
  Duration steady{0};              // which began with an arrival and ended with the last one
  bool operator==(const Arrivals&) const = default;
};
/// Bits per second once the transfer had got going; nothing when it was too short to tell.
[[nodiscard]] std::optional<double> steady_rate(const Arrivals& arrivals);

/// Gathers arrivals in bounded memory: of very many, every other one is forgotten, again and again.
class ArrivalSeries {
 public:
  /// REQUIRES: times in order.
  void add(TimePoint at, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t bytes() const { return total_; }
  [[nodiscard]] Arrivals summary() const;

 private:
  struct Point {
    TimePoint at;
    std::uint64_t total = 0;  // with this one
  };
  static constexpr std::size_t kMostPoints = 4096;
  std::vector<Point> points_;  // the first one always among them
  Point last_;
  std::uint64_t total_ = 0;
  std::uint64_t seen_ = 0;
  std::uint64_t every_ = 1;  // arrivals to a point
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
/// Whether it is worth trying more streams than those of `rates`, in order of their number: not
/// when the last two numbers were no better, by a tenth, than the best before each.
[[nodiscard]] bool more_streams_may_help(std::span<const StreamRate> rates);

/// Segments that TCP sent again: what got lost on the way, losses by the transfers' own queues
/// included, and a few repeated without need.
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
  std::uint32_t streams = 0;               // that reach 90 % of the best rate; 0: not measured
  std::vector<StreamRate> scan;            // by streams
  std::uint64_t bytes = 0;                 // sent to measure it
  std::optional<Retransmits> retransmits;  // nothing: the system does not tell
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

/// What of it cannot be, in words; empty: nothing. For measurements that others report.
[[nodiscard]] std::string fault_of(const EchoSummary& echo);
[[nodiscard]] std::string fault_of(const DirectionMeasurement& direction);
[[nodiscard]] std::string fault_of(const PairMeasurement& pair);
/// ... given that the sender has sent `bytes` and heard the answer `took` later, on its own clock.
[[nodiscard]] std::string fault_of(const Arrivals& arrivals, std::uint64_t bytes, Duration took);

}  // namespace isthmus
