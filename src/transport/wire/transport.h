// SPDX-License-Identifier: Apache-2.0
// One member's endpoint: frames out to any member, frames in from all of them in one queue.
// Implemented in memory (transport/wire/in_process_transport.h) and over simulated links (sim/).
//
// Order is kept between one pair of members; nothing is promised across pairs. A transport may
// lose, repeat, delay or damage frames only where a fault plan says so; the protocol above must
// survive it.
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

struct ReceivedFrame {
  WorkerId from;
  FrameBytes bytes;
  std::uint64_t returns = 0;  // how often there had been kPeerBack of `from` before it
};

struct TransportError {
  enum class Kind {
    kDeadlineExceeded,
    kClosed,
    kPeerLost,
    /// `peer`, which had been lost (or was absent when this member began), stands again as a new
    /// process. Nothing of what was sent to it before this was received reaches it, and after it
    /// come only frames of the new process. Of transports between processes alone, where asked for.
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
  /// Blocks for the next frame from anyone, until `deadline`.
  /// RETURNS: kDeadlineExceeded; kClosed after `close`; kPeerLost once per lost peer, and between
  /// two of the same peer kPeerBack.
  [[nodiscard]] virtual Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) = 0;
  /// Ends the endpoint: `receive` returns kClosed, the others see this member as lost. Any task.
  virtual void close() = 0;
};

}  // namespace isthmus
