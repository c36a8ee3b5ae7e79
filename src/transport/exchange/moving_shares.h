// SPDX-License-Identifier: Apache-2.0
// The owners' shares of a run whose shares move (PeerExchangeOptions::moves_shares): a member
// reports with DONE how fast the others' values came, and COMMIT says how the fragment's next round
// is cut. What is measured, and when shares move: measured_shares.h. Without moves_shares every
// round has the shares of the options, and nothing is reported. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/transport.h"
#include "transport/exchange/hub_record.h"
#include "transport/exchange/measured_shares.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/peer_exchange_options.h"

namespace isthmus {

class MovingShares {
 public:
  /// Borrows both.
  MovingShares(const EngineOptions& options, const MemberView& members);

  /// Nothing has been measured, and nothing told: another run begins.
  void restart();
  /// A frame of values has come, of a round that may still be open.
  void took(WorkerId from, const SyncId& id, FrameKind kind, std::size_t bytes, TimePoint now);
  /// The round begins again.
  void forget(const SyncId& id);
  /// Another process has taken the member's place, or it is gone.
  void forget(WorkerId member);

  /// Of the round of that name: as the last committed one of its fragment has told, or as at the
  /// start where that was in another epoch.
  [[nodiscard]] std::span<const std::uint32_t> of(const SyncId& id) const;

  /// This member has the whole result of a round. RETURNS: the bytes that go behind its digest in a
  /// DONE.
  [[nodiscard]] std::vector<std::byte> report(const SyncId& id);
  /// At the coordinator. `counts`: the first DONE of that member for that round.
  /// RETURNS: whether a DONE with these bytes behind its digest is one of this run.
  [[nodiscard]] bool take_report(WorkerId from, std::span<const std::byte> bytes, bool counts);
  /// At the coordinator: a round is committed.
  void choose_next(const SyncId& id);
  /// The bytes that go with a round's COMMIT.
  [[nodiscard]] std::vector<std::byte> told_with(const SyncId& id) const;
  /// Takes the bytes that came with a round's COMMIT. RETURNS: false where they are of another run.
  [[nodiscard]] bool take_told(const SyncId& id, std::span<const std::byte> bytes);
  /// The reason for bytes that cannot be read.
  [[nodiscard]] std::string of_unlike_files() const;
  /// A round of that epoch is final here: its fragment's next one is cut as its COMMIT has said.
  void adopt(const SyncId& id, std::uint32_t epoch);
  /// At the coordinator: rounds other than those that `needed` names are told to nobody any more.
  void forget_told(const std::function<bool(const SyncId&)>& needed);

  /// At a hub: a commit that the process before has written down.
  void restore(const HubRecord& record, const SyncId& id);
  /// ... and those were all of them.
  void end_restore();
  /// At the coordinator: the shares have moved since the last call.
  [[nodiscard]] std::optional<ShareMove> take_move();

 private:
  struct NextShares {
    std::uint32_t epoch = 0;  // they hold in
    std::vector<std::uint32_t> shares;
  };

  [[nodiscard]] bool moves() const { return options_.exchange.moves_shares; }

  const EngineOptions& options_;
  const MemberView& members_;
  std::optional<ArrivalGauge> gauge_;
  std::optional<MeasuredShares> measured_;             // at the coordinator
  std::map<SyncId, std::vector<std::uint32_t>> told_;  // with that round's COMMIT
  std::map<FragmentId, NextShares> next_;              // as the last one has told
};

}  // namespace isthmus
