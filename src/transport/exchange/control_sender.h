// SPDX-License-Identifier: Apache-2.0
// Sends the control frames of the exchange: all frames except those with a round's values
// (round_sending.h). Stamps each frame with the membership number and this member's progress, and
// adds the frame's bytes to the round that the frame concerns. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "transport/exchange/member_view.h"
#include "transport/exchange/outbox.h"
#include "transport/exchange/round_table.h"
#include "transport/wire/frame.h"

namespace isthmus {

class ControlSender {
 public:
  /// Borrows both.
  ControlSender(const MemberView& members, RoundTable& rounds)
      : members_(members), rounds_(rounds) {}

  /// `head`: the caller leaves closed_before unset, and also the epoch, except in EPOCH frames.
  void send(FrameHeader head, WorkerId to, std::span<const std::byte> payload, Outbox& out);

 private:
  const MemberView& members_;
  RoundTable& rounds_;
};

}  // namespace isthmus
