// SPDX-License-Identifier: Apache-2.0
// One direction of a link between two members, and how long frames take on it.
//
// Frames leave first in, first out, one after the other at the link's rate; each arrives half a
// round trip (and jitter) after its last bit has left. Loss on a TCP link is throughput, never a
// missing frame; missing frames belong to a fault plan (sim/faults.h).
//
// kPlain, the default, is the predictable one: a frame of b bytes takes b * 8 / rate to leave,
// exactly. With loss > 0 and cubic the rate is capped at streams x Mathis; headers and the
// inefficiency of congestion control are left out. `slow_start` adds the ramp after idle time.
// kTcp is meant to tell what a real link gives, calibrated on measurements (README.md): payload is
// 1448 of 1500 bytes, acknowledgements of the other way take their part of the line (members send
// to one another at once), every stream has its congestion window, and a link that was idle starts
// anew.
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

/// How links behave; the same for all links of a network.
struct LinkOptions {
  LinkModel model = LinkModel::kPlain;
  /// kPlain: windows start at 10 packets a stream and double every round trip up to the link's
  /// rate, again after idle time. kTcp has it always; BBR keeps its rate over idle time and is back
  /// at it within two round trips.
  bool slow_start = false;
  /// Idle time after which windows halve, and again for every further such time; 0: the usual
  /// retransmission timeout, round trip + 200 ms.
  Duration idle_restart{0};
  /// Bytes on the modelled link per byte of a frame: above 1 when a small model stands for a large
  /// one.
  double byte_scale = 1;
};

/// Payload bytes of a full packet, and its bytes with IP and TCP headers.
inline constexpr std::int64_t kSegmentBytes = 1448;
inline constexpr std::int64_t kPacketBytes = 1500;
inline constexpr std::int64_t kInitialWindowPackets = 10;  // RFC 6928
/// Of every two packets of the other way: IP and TCP headers with timestamps.
inline constexpr std::int64_t kAcknowledgementBytes = 52;

/// Bits per second one cubic or Reno stream gets under random loss p: 1.22 MSS / (RTT sqrt(p))
/// (Mathis et al., CCR 1997). REQUIRES: rtt > 0, loss > 0.
[[nodiscard]] std::int64_t mathis_bits_per_s(Duration rtt, double loss);

/// Payload bits per second that a long transfer one way gets over `link` in `model`, windows open.
/// REQUIRES: bits_per_s > 0.
[[nodiscard]] std::int64_t steady_goodput(const DirectedLink& link, LinkModel model);

}  // namespace isthmus
