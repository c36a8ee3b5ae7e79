// SPDX-License-Identifier: Apache-2.0
// Whether values given to a link's connections make progress, from TCP's counters. A peer that is
// heard may still be unreachable for values: if the path silently drops full-size packets (a path
// MTU black hole), heartbeats and acknowledgements pass, a broken connection reopens at once, and
// no frame ever arrives. Pure; one task.
//
// These cases are no stall of the network, and never count against a peer:
// - A slow line. TCP acknowledges it segment by segment, so it moves as long as one connection of
// the link delivers a segment between two looks within the timeout.
// - Frames that the sender holds back itself (net.cap, quiet hours, used-up credits): they are not
// with TCP, and those given to TCP were delivered.
// - A receiver that does not read (suspended, or slow): its end has received all that it has room
// for, and announces a zero window. Heartbeats tell whether it is alive.
// - A frame that has arrived and was not taken: it counts as delivered, and LinkEngine checks it
// separately.
// - A system without TCP counters, and connections that are not open: other timeouts cover those.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/links/link_gauge.h"

namespace isthmus {

/// The progress since the last look.
enum class Movement {
  kMoves,      // or unknown
  kDelivered,  // TCP had no unacknowledged bytes at this look and the previous one
  kStalled,    // TCP had bytes, and none got through; or no connection is open
};

class LinkProgress {
 public:
  /// Fewer bytes on a connection may be heartbeats, greetings or the end of a frame, not values.
  static constexpr std::uint64_t kValues = 1024;
  /// Fewer bytes than TCP's smallest segment are no progress of queued values.
  static constexpr std::uint64_t kSegment = 512;
  /// More bytes are values even if TCP had none left at either look: no handshake is as long.
  static constexpr std::uint64_t kBurst = 4096;

  /// `each`: one entry for every connection dialled to the peer, in order; nothing for one that is
  /// not open or has no counters. `passed_on`: the connections end at a forwarder on this machine,
  /// so a zero window means that the forwarder cannot deliver.
  [[nodiscard]] Movement observe(std::span<const std::optional<LinkCounters>> each, bool passed_on);

 private:
  std::vector<std::optional<LinkCounters>> last_;
  bool tells_ = false;      // this system has TCP counters
  bool delivered_ = false;  // at the previous look
};

}  // namespace isthmus
