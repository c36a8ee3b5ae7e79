// SPDX-License-Identifier: Apache-2.0
// The sending half of a round at one member: sends this member's frames, keeps them for repeats and
// counts their bytes. A sent frame is stamped with the number of echoes sent before it, so that a
// request never repeats a frame that is still in flight. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/exchange/outbox.h"
#include "transport/exchange/round_routes.h"
#include "transport/wire/frame.h"

namespace isthmus {

class RoundSending {
 public:
  /// `routes` is shared with the round. `echoes`: RoundPlace::echoes, borrowed.
  RoundSending(std::shared_ptr<const RoundRoutes> routes, const std::vector<std::uint32_t>* echoes);

  /// This member's contribution to part k; sent by send_contributions.
  void set_contribution(std::size_t k, FrameBytes frame) { kept_[k].own = std::move(frame); }
  /// Sends all frames of this member's contribution.
  void send_contributions(Outbox& out);
  /// Sends the mean of part k over this member's group to the part's owner.
  void send_partial(std::size_t k, FrameBytes frame, Outbox& out);
  /// Sends the result of part k to the members that get it from this member.
  void send_result(std::size_t k, FrameBytes frame, Outbox& out);
  /// The result of part k has arrived: the part's owner has all inputs from this member.
  void drop_inputs_of(std::size_t k);

  /// Sends again the frames that `entries` name and that were last sent before the echo numbered
  /// `echo` to that peer; frames sent after the echo are still in flight.
  void send_again(WorkerId to, std::span<const RequestEntry> entries, std::uint32_t echo,
                  Outbox& out);
  /// Sends all frames for `to` again: a new process has received none of them.
  void send_anew(WorkerId to, Outbox& out);
  /// Frees the frames: all members have the whole result.
  void drop_frames();

  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] std::uint64_t wire_bytes() const { return wire_bytes_; }
  /// Adds a control frame to the round's wire bytes.
  void count_wire(std::size_t bytes) { wire_bytes_ += bytes; }

 private:
  /// Frames of one part, kept for repeats.
  struct Kept {
    FrameBytes own;      // this member's contribution, until its receiver surely has it
    FrameBytes result;   // the owner's answer
    FrameBytes partial;  // two levels: the group's mean, until its owner has it
  };

  void send(WorkerId to, std::size_t k, FrameKind kind, const FrameBytes& frame, Outbox& out);
  [[nodiscard]] std::uint32_t& stamp(WorkerId to, std::size_t k, FrameKind kind);

  std::shared_ptr<const RoundRoutes> routes_;
  const std::vector<std::uint32_t>* echoes_;
  std::vector<Kept> kept_;             // by part
  std::vector<std::uint32_t> stamps_;  // (kind, part, peer): echoes sent before the last sending
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t wire_bytes_ = 0;
};

}  // namespace isthmus
