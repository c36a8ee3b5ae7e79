// SPDX-License-Identifier: Apache-2.0
// Whether what was given to the connections of a link moves, by what TCP counts on them. A peer
// that is heard may yet be out of reach for values: where the way drops packets of full size and
// tells nobody (a path MTU black hole), heartbeats and acknowledgements pass, a connection that
// breaks is back at once, and no frame ever comes. Pure; one task.
//
// What is no standstill of the network, and so never tells against a peer:
// - A slow line. TCP acknowledges it a segment at a time, so it moves as long as one connection of
//   the link has a segment through between two looks at some point within the patience.
// - What the sender holds back itself (net.cap, quiet hours, credits that are used up): that is not
//   with TCP, and what is with it has gone.
// - A receiver that does not read (stopped, or slow): its end has all that it has room for, and
//   says so by a window that is shut. Whether it lives is told by heartbeats.
// - A frame that is there and that nobody has taken: delivered, which LinkEngine looks at apart.
// - A system that does not tell, and connections that do not stand: those have a time of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/links/link_gauge.h"

namespace isthmus {

/// What became of it since the last look.
enum class Movement {
  kMoves,      // or it is not known
  kDelivered,  // nothing is left with TCP, at this look and at the one before
  kStalled,    // there is something, and nothing of it got through; or no connection stands
};

class LinkProgress {
 public:
  /// Less on a connection may be heartbeats, greetings or the last bytes of a frame: no values.
  static constexpr std::uint64_t kValues = 1024;
  /// Less than the smallest segment of TCP is nothing that moves out of a queue of values.
  static constexpr std::uint64_t kSegment = 512;
  /// More is values even where nothing was left at either look: no handshake is as long.
  static constexpr std::uint64_t kBurst = 4096;

  /// `each`: of every connection dialled to the peer, in their order; nothing for one that does not
  /// stand or tell. `passed_on`: they end in this machine, from where another task carries their
  /// bytes on, so a window that is shut says that this task cannot.
  [[nodiscard]] Movement observe(std::span<const std::optional<LinkCounters>> each, bool passed_on);

 private:
  std::vector<std::optional<LinkCounters>> last_;
  bool tells_ = false;      // this system
  bool delivered_ = false;  // at the look before
};

}  // namespace isthmus
