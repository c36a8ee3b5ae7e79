// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/control_sender.h"

namespace isthmus {

void ControlSender::send(FrameHeader head, WorkerId to, std::span<const std::byte> payload,
                         Outbox& out) {
  const bool of_round = head.kind == FrameKind::kDone || head.kind == FrameKind::kCommit ||
                        head.kind == FrameKind::kAbort || head.kind == FrameKind::kRequest ||
                        head.kind == FrameKind::kBegun;
  if (head.kind != FrameKind::kEpoch) {
    const Membership& membership = members_.membership();
    head.epoch = of_round ? membership.epoch_of(head.id.sent) : membership.number();
  }
  head.closed_before = rounds_.closed_before();
  out.push_back({to, make_frame(head, payload), 0});
  if (OpenRound* open = rounds_.find(head.id); open != nullptr && !open->taken) {
    open->round.count_wire(out.back().frame->size());
  }
}

}  // namespace isthmus
