// SPDX-License-Identifier: Apache-2.0
// The sending half of a round at one member: sends this member's frames, keeps them for repeats and
// counts their bytes. A sent frame is stamped with the number of echoes sent before it, so that a
// request never repeats a frame that is still in flight. Contributions that the round has not used
// yet may have a bound (Transport::most_unused); those beyond it wait here until results show that
// others were used. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "transport/exchange/outbox.h"
#include "transport/exchange/round_routes.h"
#include "transport/wire/frame.h"

namespace isthmus {

class RoundSending {
 public:
  /// `routes` is shared with the round. `place`: its `echoes` are borrowed, its `most_unused` count
  /// in a round of one level.
  RoundSending(std::shared_ptr<const RoundRoutes> routes, const RoundPlace& place);

  /// This member's contribution to part k; sent by send_contributions.
  void set_contribution(std::size_t k, FrameBytes frame) { kept_[k].own = std::move(frame); }
  /// Sends the frames of this member's contribution, to each member as many as may go now.
  void send_contributions(Outbox& out);
  /// The result of part k is here, so all contributions to the part have been used by the member
  /// that sums it, or, in a gather, will be as soon as they arrive. Sends frames that have waited.
  void part_done(std::size_t k, Outbox& out);
  /// Sends the mean of part k over this member's group to the part's owner.
  void send_partial(std::size_t k, FrameBytes frame, Outbox& out);
  /// Sends the result of part k to the members that get it from this member. `keep`: for repeats;
  /// else the frame can be made again.
  void send_result(std::size_t k, const FrameBytes& frame, bool keep, Outbox& out);
  /// The result of part k has arrived: the part's owner has all inputs from this member.
  void drop_inputs_of(std::size_t k);

  /// Makes the frame of part k's result again.
  using MakeResult = std::function<FrameBytes(std::size_t k)>;
  /// Sends again the frames that `entries` name and that were last sent before the echo numbered
  /// `echo` to that peer; frames sent after the echo are still in flight.
  void send_again(WorkerId to, std::span<const RequestEntry> entries, std::uint32_t echo,
                  const MakeResult& make_result, Outbox& out);
  /// Sends all frames for `to` again: a new process has received none of them.
  void send_anew(WorkerId to, const MakeResult& make_result, Outbox& out);
  /// Frees the frames: all members have the whole result.
  void drop_frames();

  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] std::uint64_t wire_bytes() const { return wire_bytes_; }
  /// Adds a control frame to the round's wire bytes.
  void count_wire(std::size_t bytes) { wire_bytes_ += bytes; }

 private:
  /// Frames of one part, kept for repeats.
  struct Kept {
    FrameBytes own;     // this member's contribution, until its receiver surely has it
    FrameBytes result;  // the owner's answer; null where it can be made again
    bool answered = false;
    FrameBytes partial;  // two levels: the group's mean, until its owner has it
  };

  /// This member's contributions to one member, which go in the order of the parts.
  struct Ahead {
    std::size_t most = kNoBound;  // of `unused`; one part goes whatever its size
    std::size_t unused = 0;       // bytes sent of parts that are not done
    std::size_t next = 0;         // parts from this one on have not been sent
  };

  void send(WorkerId to, std::size_t k, FrameKind kind, const FrameBytes& frame, Outbox& out);
  /// Sends the next part's contribution, if `to` gets any. RETURNS: false where it has to wait, or
  /// all are sent.
  bool send_next(WorkerId to, Outbox& out);
  /// The answer to part k; null where there is none yet.
  [[nodiscard]] FrameBytes result_of(std::size_t k, const MakeResult& make_result) const;
  [[nodiscard]] std::uint32_t& stamp(WorkerId to, std::size_t k, FrameKind kind);

  std::shared_ptr<const RoundRoutes> routes_;
  const std::vector<std::uint32_t>* echoes_;
  std::vector<Kept> kept_;             // by part
  std::vector<bool> done_;             // by part: its result is here
  std::vector<Ahead> ahead_;           // by member; in a round of one level
  std::vector<std::uint32_t> stamps_;  // (kind, part, peer): echoes sent before the last sending
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t wire_bytes_ = 0;
};

}  // namespace isthmus
