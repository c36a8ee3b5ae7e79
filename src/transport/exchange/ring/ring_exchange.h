// SPDX-License-Identifier: Apache-2.0
// Exchange along a ring (transport/exchange/ring/ring_plan.h), for benchmarks; runs use
// PeerExchange, which has all features that are missing here. No frame is repeated, membership is
// fixed, one round is open at a time, and bytes move only inside `begin`, `poll` and `wait`. Equal
// to PeerExchange: the cut into parts, which are passed on one by one, frames and their checks,
// DONE with a digest to member 0, COMMIT to all.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/runtime.h"
#include "isthmus/transport.h"
#include "transport/exchange/ring/ring_plan.h"
#include "transport/wire/frame.h"
#include "transport/wire/transport.h"

namespace isthmus {

class RingExchange final : public Exchange {
 public:
  /// Borrows both for its life; closes the transport at its end. `order`: the members along the
  /// ring, equal on all members; empty: by number.
  RingExchange(Transport& transport, const Runtime& runtime, std::vector<int> order);
  ~RingExchange() override;

  [[nodiscard]] WorkerId self() const override { return transport_.self(); }
  [[nodiscard]] int members() const override { return transport_.size(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override;
  /// REQUIRES also: no round is open; a weight of 1; a codec that is not sparse; no owner residual.
  /// The contribution's kind is ignored.
  Ticket begin(Contribution contribution) override;
  [[nodiscard]] bool poll(const Ticket& ticket) override;
  /// RETURNS: kDeadlineExceeded, after which `wait` may be called again; kPeerLost for a member
  /// whose frames are missing; kCorrupt for a frame that does not belong here; kDiverged.
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override;
  [[nodiscard]] ByteCounts bytes() const override { return sent_; }

 private:
  struct Round;

  void send(WorkerId to, FrameBytes frame);
  /// Takes frames until the round is complete or `deadline`.
  void take_frames(TimePoint deadline);
  void take(const ReceivedFrame& received);
  void take_sum(std::size_t part, const ReceivedFrame& received);
  void take_mean(std::size_t part, const ReceivedFrame& received);
  void take_done(WorkerId from, const Digest128& digest);
  void take_loss(WorkerId peer);
  /// Adds this member's contribution to the predecessor's sum of `part` (null where this member
  /// begins the sum), and sends the sum or, at the root, the mean.
  void pass_on(std::size_t part, const FrameBytes& sum);
  void finish_part();
  [[nodiscard]] FrameBytes frame_of(FrameKind kind, std::size_t part,
                                    std::span<const std::byte> payload) const;
  void fail(ExchangeError::Kind kind, WorkerId peer, std::string what);

  Transport& transport_;
  const Clock& clock_;
  const std::vector<int> order_;
  std::unique_ptr<Round> round_;
  /// Frames of the next round, from members that have finished this one. No member gets further: a
  /// result needs all contributions.
  std::vector<ReceivedFrame> early_;
  std::vector<WorkerId> lost_;
  ByteCounts sent_;
};

}  // namespace isthmus
