// SPDX-License-Identifier: Apache-2.0
// What a transport over TCP knows of its connections beyond the frames, and the one thing that can
// be set: for those who measure links. A transport that can tell implements it beside Transport;
// ask by dynamic_cast.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isthmus/types.h"

namespace isthmus {

/// Of the connections to one peer, as the system's TCP counts them.
struct LinkCounters {
  std::uint64_t segments = 0;     // with data, sent since the connections stand, repeated ones too
  std::uint64_t retransmits = 0;  // of those, sent again
  Duration busy{0};               // that they had data to send or under way, summed over them
  Duration rtt{0};                // smoothed round trip, mean over the connections in use
  std::string congestion{};       // "cubic", "bbr"; empty: not known
  std::uint64_t acked_bytes = 0;  // that the other end has, with what the transport adds to frames
  /// Given to TCP, and not acknowledged; nothing: the system does not tell, nor the next.
  std::optional<std::uint64_t> queued_bytes{};
  bool peer_full = false;  // the other end has no room for another segment, and says so
};

/// How the link to a peer does, for pages about a run: of the connections dialled to it.
struct LinkReading {
  int connections = 0;            // that stand and tell
  std::optional<Duration> rtt{};  // smoothed round trip, mean over them
  std::uint64_t segments = 0;     // with data, over all connections there ever were
  std::uint64_t retransmits = 0;  // of those, sent again
  /// While something was under way, between two looks of which enough was.
  std::optional<double> goodput_bits_per_s{};
  bool around = false;  // they go by way of a relay for now: the rest is of before
};

class LinkGauge {
 public:
  virtual ~LinkGauge() = default;
  /// From now on frames to `to` go over the first `streams` connections only. The others stay.
  /// REQUIRES: a link whose number of connections is fixed.
  virtual void use_streams(WorkerId to, int streams) = 0;
  /// Blocks for a moment. RETURNS: nothing where the system does not tell, or none stands.
  [[nodiscard]] virtual std::optional<LinkCounters> counters(WorkerId to) = 0;
};

}  // namespace isthmus
