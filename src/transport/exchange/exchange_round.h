// SPDX-License-Identifier: Apache-2.0
// The data path of one round at one member: the parts that it sends, sums, answers and still
// misses. A pure state machine: frames in, frames out; it does not know threads, time or the commit
// protocol (exchange_engine.h). All operations are idempotent: frames may arrive twice, late or in
// any order. Routes of the parts: round_routes.h. Sent frames: round_sending.h. The result:
// result_builder.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/transport.h"
#include "transport/exchange/encoded_result.h"
#include "transport/exchange/outbox.h"
#include "transport/exchange/result_builder.h"
#include "transport/exchange/round_routes.h"
#include "transport/exchange/round_sending.h"
#include "transport/wire/frame.h"

namespace isthmus {

/// A contribution whose encoded bytes the frames of its rounds and those who may begin it again
/// share: a copy of it copies no bytes.
struct SharedContribution {
  Contribution form;  // without bytes
  std::shared_ptr<const std::vector<std::byte>> bytes;
};
[[nodiscard]] SharedContribution share(Contribution contribution);

class Round {
 public:
  /// Cuts this member's contribution into parts and frames. REQUIRES: a valid contribution
  /// (peer_exchange.cpp checks).
  Round(SharedContribution contribution, const RoundPlace& place);
  Round(Contribution contribution, const RoundPlace& place)
      : Round(share(std::move(contribution)), place) {}

  /// Queues this member's contribution; sums the parts that need no other member. RETURNS: kCorrupt
  /// when this member's own bytes do not decode.
  [[nodiscard]] Expected<void, ExchangeError> launch(Outbox& out);
  /// Takes a kContribution, kPartial or kResult frame that `parse_frame` accepted. Sets `fresh`
  /// when its content is new here. RETURNS: kDiverged when the sender's layout differs, kCorrupt
  /// when its bytes do not decode or contradict its other frames.
  [[nodiscard]] Expected<void, ExchangeError> receive(WorkerId from, const Frame& frame,
                                                      FrameBytes bytes, bool& fresh, Outbox& out);
  /// As RoundSending.
  void send_again(WorkerId to, std::span<const RequestEntry> entries, std::uint32_t echo,
                  Outbox& out);
  void send_anew(WorkerId to, Outbox& out);

  /// True when all values of the result are here.
  [[nodiscard]] bool complete() const { return result_.complete(); }
  /// The frames that this member still needs from `peer`; at most kMaxRequestEntries; may be empty.
  [[nodiscard]] std::vector<RequestEntry> missing_from(WorkerId peer) const;
  [[nodiscard]] bool owes(WorkerId peer) const { return !missing_from(peer).empty(); }
  /// True when this member sums contributions and has none from `peer`: `peer` has not begun the
  /// round.
  [[nodiscard]] bool nothing_from(WorkerId peer) const;
  /// True when this member sums partials of groups and has none of those that `peer` of another
  /// group sends: `peer` has not begun the round, or waits for a member of its group.
  [[nodiscard]] bool no_partial_from(WorkerId peer) const;
  /// As ResultBuilder. REQUIRES: complete().
  [[nodiscard]] Digest128 digest() const { return result_.digest(); }
  /// Frees the frames kept for repeats: all members have the whole result.
  void drop_frames();
  /// The result, moved out. REQUIRES: complete(), called once.
  [[nodiscard]] Reduced take();
  /// The frames that the result was decoded from, if the place keeps them. REQUIRES: as take.
  [[nodiscard]] EncodedResult take_encoded() { return result_.take_encoded(); }

  [[nodiscard]] const SyncId& id() const { return id_; }
  [[nodiscard]] std::uint32_t epoch() const { return epoch_; }
  [[nodiscard]] std::uint64_t wire_bytes() const { return sending_.wire_bytes(); }
  /// Adds a control frame to the round's wire bytes.
  void count_wire(std::size_t bytes) { sending_.count_wire(bytes); }

 private:
  /// The received inputs of one part.
  struct PartInputs {
    std::vector<FrameBytes> inputs;    // by member, if this member sums the part
    std::vector<FrameBytes> partials;  // two levels: by group, if this member owns the part
  };

  void frame_contribution(const SharedContribution& contribution);
  [[nodiscard]] FrameHeader header(FrameKind kind) const;
  [[nodiscard]] FrameHeader header_of_part(FrameKind kind, std::size_t part) const;
  [[nodiscard]] Expected<void, ExchangeError> take_contribution(WorkerId from, const Frame& frame,
                                                                FrameBytes bytes, bool& fresh,
                                                                Outbox& out);
  [[nodiscard]] Expected<void, ExchangeError> take_result(WorkerId from, const Frame& frame,
                                                          FrameBytes bytes, bool& fresh,
                                                          Outbox& out);
  [[nodiscard]] Expected<void, ExchangeError> take_partial(WorkerId from, const Frame& frame,
                                                           FrameBytes bytes, bool& fresh,
                                                           Outbox& out);
  [[nodiscard]] Expected<void, ExchangeError> reduce_if_ready(std::size_t part, Outbox& out);
  [[nodiscard]] Expected<void, ExchangeError> reduce_part(std::size_t part);
  [[nodiscard]] Expected<void, ExchangeError> close_group(std::size_t part, Outbox& out);
  [[nodiscard]] Expected<void, ExchangeError> mean_of_groups(std::size_t part, Outbox& out);
  [[nodiscard]] Expected<void, ExchangeError> answer(std::size_t part, Outbox& out);
  [[nodiscard]] FrameBytes answer_again(std::size_t part);
  [[nodiscard]] bool misses_partial(std::size_t part, WorkerId peer) const;
  [[nodiscard]] Unexpected<ExchangeError> fault(ExchangeError::Kind kind, WorkerId peer,
                                                const std::string& what) const;

  SyncId id_;
  std::uint32_t epoch_;
  std::int64_t closed_before_;
  std::shared_ptr<const RoundRoutes> routes_;  // shared with sending_ and result_
  RoundSending sending_;
  ResultBuilder result_;
  /// Answers are made again from the result where a member asks for them, and not kept. The result
  /// is here until the round is committed; afterwards no member asks.
  bool answers_again_;
  std::vector<PartInputs> parts_;
  std::vector<std::optional<double>> weights_;        // by member, once known
  std::vector<std::optional<double>> group_weights_;  // two levels: by group, once known
};

}  // namespace isthmus
