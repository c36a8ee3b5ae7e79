// SPDX-License-Identifier: Apache-2.0
// One member's endpoint: frames out to any member, frames in from all of them in one queue.
// Implemented in memory (transport/wire/in_process_transport.h), over networks (transport/links)
// and over simulated links (sim/).
//
// Frames between one pair of members keep their order; there is no order across pairs. A transport
// may lose, repeat, delay or damage frames only under a fault plan; the protocol above must survive
// that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "isthmus/expected.h"
#include "isthmus/types.h"
#include "transport/wire/frame_bytes.h"
#include "transport/wire/loss_cause.h"

namespace isthmus {

/// Payload bytes of one frame are at most this many.
inline constexpr std::size_t kMaxFramePayload = std::size_t{1} << 20;

/// Transport::most_unused where a round may send everything at once.
inline constexpr std::size_t kNoBound = ~std::size_t{0};

struct ReceivedFrame {
  WorkerId from;
  FrameBytes bytes;
  std::uint64_t returns = 0;  // number of kPeerBack of `from` before it
};

struct TransportError {
  enum class Kind {
    kDeadlineExceeded,
    kClosed,
    kPeerLost,
    /// `peer`, which was lost (or was absent when this member began), has returned as a new
    /// process. It receives nothing that was sent to it before this news was received, and only
    /// frames of the new process follow. Only from transports between processes, on request.
    kPeerBack,
  };
  Kind kind = Kind::kDeadlineExceeded;
  WorkerId peer;  // for kPeerLost and kPeerBack
  std::string what;
  LossCause cause = LossCause::kGone;
};

class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual WorkerId self() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Queues one frame for `to` (not self) and returns at once. Frames to a lost peer are dropped.
  virtual void send(WorkerId to, FrameBytes frame) = 0;
  /// Blocks for the next frame from any member, until `deadline`. RETURNS: kDeadlineExceeded;
  /// kClosed after `close`; kPeerLost once for each loss; kPeerBack once the lost peer has
  /// returned, before it can be lost again.
  [[nodiscard]] virtual Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) = 0;
  /// The most bytes of one round's contributions on their way to `peer` that the round has not used
  /// there: a sender holds the rest back, so that the memory of a round has a bound. May change at
  /// any time, and counts when a round begins. Any task; never blocks.
  [[nodiscard]] virtual std::size_t most_unused(WorkerId /*peer*/) const { return kNoBound; }
  /// Ends the endpoint: `receive` returns kClosed, the others see this member as lost. Any task.
  virtual void close() = 0;
};

}  // namespace isthmus
