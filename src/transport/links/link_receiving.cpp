// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_receiving.h"

#include <utility>

namespace isthmus {

bool LinkReceiving::take_frame(WorkerId from, std::uint64_t number, FrameBytes frame) {
  LinkPeer& peer = all_.at(from);
  std::vector<FrameBytes> in_order;
  const auto verdict = peer.in.receive(number, std::move(frame), in_order);
  if (verdict == LinkReceiver::Verdict::kBeyondWindow) {
    return false;
  }
  for (FrameBytes& each : in_order) {
    if (all_.options.readmits && !peer.joined) {
      peer.early.push_back(std::move(each));  // the news that the peer is here goes first
    } else {
      hand_out(from, std::move(each));
    }
  }
  return true;
}

void LinkReceiving::hand_out_early(WorkerId from) {
  for (FrameBytes& frame : std::exchange(all_.at(from).early, {})) {
    hand_out(from, std::move(frame));
  }
}

void LinkReceiving::hand_out(WorkerId from, FrameBytes frame) {
  const std::size_t bytes = frame->size();
  if (all_.closing) {
    count_taken(from, bytes);
  } else {
    all_.port.deliver(from, std::move(frame));
  }
}

void LinkReceiving::count_taken(WorkerId from, std::size_t frame_bytes) {
  LinkPeer& peer = all_.at(from);
  peer.in.taken(frame_bytes);
  if (peer.in.owes_acknowledgement() && !peer.lost) {
    connections_.acknowledge(from);
  }
}

void LinkReceiving::says(std::size_t frame_bytes) {
  if (frame_bytes >= kLeastValues) return;
  for (const WorkerId from : all_.living()) {
    if (all_.at(from).in.owes_with_a_word()) connections_.acknowledge(from);
  }
}

}  // namespace isthmus
