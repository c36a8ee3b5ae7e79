// SPDX-License-Identifier: Apache-2.0
// TCP statistics of a transport's connections, and the number of connections in use, for measuring
// links. A transport over TCP implements it besides Transport; ask by dynamic_cast.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isthmus/types.h"

namespace isthmus {

/// Counters of the system's TCP, over the connections to one peer.
struct LinkCounters {
  std::uint64_t segments = 0;     // with data, retransmits included, since the connections opened
  std::uint64_t retransmits = 0;  // of those, retransmitted
  Duration busy{0};               // time with data to send or in flight, summed over them
  Duration rtt{0};                // smoothed round trip, mean over the connections in use
  std::string congestion{};       // "cubic", "bbr"; empty: not known
  std::uint64_t acked_bytes = 0;  // received by the other end, with the transport's headers
  /// Given to TCP and not acknowledged; nothing: the system does not report it, nor the next field.
  std::optional<std::uint64_t> queued_bytes{};
  bool peer_full = false;  // the other end announces a window without room for a segment
};

/// The state of the link to a peer, for pages about a run; of the connections dialled to it.
struct LinkReading {
  int connections = 0;            // that are open and report
  std::optional<Duration> rtt{};  // smoothed round trip, mean over them
  std::uint64_t segments = 0;     // with data, over all connections so far
  std::uint64_t retransmits = 0;  // of those, retransmitted
  /// While values were in flight, between two looks with enough traffic.
  std::optional<double> goodput_bits_per_s{};
  bool around = false;  // the connections use a relay now: the other fields are older
};

class LinkGauge {
 public:
  virtual ~LinkGauge() = default;
  /// From now on frames to `to` use only the first `streams` connections; the others stay open.
  /// REQUIRES: a link with a fixed number of connections.
  virtual void use_streams(WorkerId to, int streams) = 0;
  /// Blocks for a moment. RETURNS: nothing when the system does not report, or no connection is
  /// open.
  [[nodiscard]] virtual std::optional<LinkCounters> counters(WorkerId to) = 0;
};

}  // namespace isthmus
