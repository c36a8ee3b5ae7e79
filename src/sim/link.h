// SPDX-License-Identifier: Apache-2.0
// One direction of a link between two members, and the durations of frames on it.
//
// Frames are sent first in, first out, at the link's rate; each arrives half a round trip (and
// jitter) after its last bit was sent. Loss on a TCP link reduces throughput, and never loses a
// frame; lost frames belong to a fault plan (sim/faults.h).
//
// kPlain, the default, is the predictable model: a frame of b bytes takes exactly b * 8 / rate to
// send. With loss > 0 and cubic the rate is capped at streams x Mathis; headers and the
// inefficiency of congestion control are omitted. `slow_start` adds the ramp after idle time. kTcp
// models a real link, calibrated on measurements (README.md): payload is 1448 of 1500 bytes,
// acknowledgements of the other direction use their part of the line (members send to one another
// at once), every stream has a congestion window, and an idle link starts again.
#pragma once

#include <cstdint>
#include <string>

#include "isthmus/types.h"

namespace isthmus {

enum class Congestion { kBbr, kCubic };
enum class LinkModel { kPlain, kTcp };

struct DirectedLink {
  std::int64_t bits_per_s = 0;  // 0: frames leave at once
  Duration one_way{0};          // half the round trip
  Duration jitter{0};           // each frame takes up to this much longer, uniform, in order
  double loss = 0;              // packet loss rate, [0, 1)
  int streams = 1;              // parallel TCP connections
  Congestion congestion = Congestion::kBbr;

  [[nodiscard]] Duration rtt() const { return 2 * one_way; }
};

/// THROWS: ConfigError naming `label`, the value and the rule.
void check_link(const DirectedLink& link, const std::string& label);

/// The model of links; the same for all links of a network.
struct LinkOptions {
  LinkModel model = LinkModel::kPlain;
  /// kPlain: windows start at 10 packets a stream and double every round trip up to the link's
  /// rate, again after idle time. kTcp always has this; BBR keeps its rate over idle time and
  /// reaches it again within two round trips.
  bool slow_start = false;
  /// Idle time after which windows halve, and again for every further such time; 0: the usual
  /// retransmission timeout, round trip + 200 ms.
  Duration idle_restart{0};
  /// Bytes on the modelled link per byte of a frame: above 1 if a small model stands for a large
  /// one.
  double byte_scale = 1;
};

/// Payload bytes of a full packet, and its bytes with IP and TCP headers.
inline constexpr std::int64_t kSegmentBytes = 1448;
inline constexpr std::int64_t kPacketBytes = 1500;
inline constexpr std::int64_t kInitialWindowPackets = 10;  // RFC 6928
/// Per two packets of the other direction: IP and TCP headers with timestamps.
inline constexpr std::int64_t kAcknowledgementBytes = 52;

/// Bits per second one cubic or Reno stream gets under random loss p: 1.22 MSS / (RTT sqrt(p))
/// (Mathis et al., CCR 1997). REQUIRES: rtt > 0, loss > 0.
[[nodiscard]] std::int64_t mathis_bits_per_s(Duration rtt, double loss);

/// Payload bits per second of a long transfer in one direction over `link` in `model`, with open
/// windows. REQUIRES: bits_per_s > 0.
[[nodiscard]] std::int64_t steady_goodput(const DirectedLink& link, LinkModel model);

}  // namespace isthmus
