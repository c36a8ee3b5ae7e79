// SPDX-License-Identifier: Apache-2.0
// What an exchange takes this machine's processor: measured between members in this process, over
// loopback. On lines of some gigabits a second it is the bound (docs/internals/exchange.md).
#pragma once

#include <cstddef>
#include <string>

#include "isthmus/runtime.h"
#include "isthmus/transport.h"

namespace isthmus::app {

struct ExchangeCost {
  std::string codec;
  ReductionKind kind = ReductionKind::kReduce;
  int members = 2;
  std::size_t bytes = 0;          // of the vector in fp32
  std::size_t encoded_bytes = 0;  // the same on the wire
  int rounds = 0;
  double processor_s = 0;  // of one member for a round, all its threads
  double round_s = 0;      // median of the rounds, all members at once
  int cores = 1;           // that the members share

  /// Bits of the fp32 vector that a core exchanges in a second.
  [[nodiscard]] double bits_a_core() const { return bits() / processor_s; }
  /// Seconds that a site like a member here takes for a round, however fast its links are. Where
  /// members are more than cores, of a site with one core.
  [[nodiscard]] double site_s() const;
  /// Bits of the fp32 vector that such a site exchanges in a second.
  [[nodiscard]] double bits_per_s() const { return bits() / site_s(); }
  /// Bits that it then sends in a second, and as many receives.
  [[nodiscard]] double line_bits_per_s() const;
  /// Seconds that such a site takes for a round of `bytes` in fp32 among `members`: by the vectors
  /// that a member sends.
  [[nodiscard]] double round_of(double bytes, int members) const;

 private:
  [[nodiscard]] double bits() const { return 8 * static_cast<double>(bytes); }
};

/// What is measured.
struct ExchangeTrial {
  std::string codec;
  ReductionKind kind = ReductionKind::kReduce;  // or kGather
  int members = 2;                              // at least 2
  std::size_t bytes = 0;                        // of the vector in fp32, at least one value
  int cores = 1;                                // of this machine
};
/// Some rounds, for about `budget`. THROWS: SystemError without ZeroMQ or a port; ConfigError with
/// too few open files; PeerError when a member fails.
[[nodiscard]] ExchangeCost measure_exchange(const ExchangeTrial& trial, Duration budget);

/// Of all threads of this process, since it began.
[[nodiscard]] double processor_seconds();

}  // namespace isthmus::app
