// SPDX-License-Identifier: Apache-2.0
// The sending half of a round at one member: the frames that this member sends, which it keeps for
// members that may ask for them again, and the count of their bytes. A repetition is stamped with
// the echoes sent before it, so that a request never repeats what is still under way. Pure.
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
  /// The round and its sending half own `routes` together. `echoes`: RoundPlace::echoes, borrowed.
  RoundSending(std::shared_ptr<const RoundRoutes> routes, const std::vector<std::uint32_t>* echoes);

  /// The own contribution to part k; sent by send_contributions.
  void set_contribution(std::size_t k, FrameBytes frame) { kept_[k].own = std::move(frame); }
  /// Sends the own contribution's frames, all of them.
  void send_contributions(Outbox& out);
  /// Sends the own group's mean of part k to the part's owner.
  void send_partial(std::size_t k, FrameBytes frame, Outbox& out);
  /// Sends the result of part k to the members that wait for it from this one.
  void send_result(std::size_t k, FrameBytes frame, Outbox& out);
  /// The result of part k shows that the part's owner has everything of this member.
  void drop_inputs_of(std::size_t k);

  /// Sends again what `entries` name and was last sent before the echo numbered `echo` to that
  /// peer; what went out after the echo is still under way.
  void send_again(WorkerId to, std::span<const RequestEntry> entries, std::uint32_t echo,
                  Outbox& out);
  /// Sends everything for `to` again, which has got nothing yet.
  void send_anew(WorkerId to, Outbox& out);
  /// Frees the frames: all members have the whole result.
  void drop_frames();

  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] std::uint64_t wire_bytes() const { return wire_bytes_; }
  /// Adds a protocol message to the round's wire bytes.
  void count_wire(std::size_t bytes) { wire_bytes_ += bytes; }

 private:
  /// Frames of one part that others may ask for.
  struct Kept {
    FrameBytes own;      // own contribution, until its reducer has surely got it
    FrameBytes result;   // the owner's answer
    FrameBytes partial;  // of two levels: the own group's mean, until its owner has it
  };

  void send(WorkerId to, std::size_t k, FrameKind kind, const FrameBytes& frame, Outbox& out);
  [[nodiscard]] std::uint32_t& stamp(WorkerId to, std::size_t k, FrameKind kind);

  std::shared_ptr<const RoundRoutes> routes_;
  const std::vector<std::uint32_t>* echoes_;
  std::vector<Kept> kept_;             // by part
  std::vector<std::uint32_t> stamps_;  // (kind, part, peer): echoes sent before it last went out
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t wire_bytes_ = 0;
};

}  // namespace isthmus
