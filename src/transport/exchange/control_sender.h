// SPDX-License-Identifier: Apache-2.0
// The way out of the exchange's control frames: everything but a round's values
// (round_sending.h). Stamps each frame with the epoch and with how far this member is, and counts
// its bytes for the round it is about. Pure.
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

  /// `head`: without epoch, but for EPOCH frames, and without closed_before.
  void send(FrameHeader head, WorkerId to, std::span<const std::byte> payload, Outbox& out);

 private:
  const MemberView& members_;
  RoundTable& rounds_;
};

}  // namespace isthmus
