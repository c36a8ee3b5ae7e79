// SPDX-License-Identifier: Apache-2.0
// The owners' shares of a run whose shares move (PeerExchangeOptions::moves_shares). A member
// reports in DONE how fast the other members' values arrived, and COMMIT carries the shares of the
// fragment's next round. measured_shares.h measures the rates and decides when shares move. Without
// moves_shares every round has the shares of the options, and nothing is reported. Pure.
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

  /// Another run begins: forgets all measured rates and received shares.
  void restart();
  /// A frame of values has arrived; its round may still be open.
  void took(WorkerId from, const SyncId& id, FrameKind kind, std::size_t bytes, TimePoint now);
  /// The round begins again.
  void forget(const SyncId& id);
  /// A new process has replaced the member, or the member has left.
  void forget(WorkerId member);

  /// The shares of round `id`: those carried by the COMMIT of the fragment's previous round, or the
  /// shares of the start if that COMMIT had another membership number.
  [[nodiscard]] std::span<const std::uint32_t> of(const SyncId& id) const;

  /// This member has the whole result of a round. RETURNS: the bytes that follow the digest in a
  /// DONE.
  [[nodiscard]] std::vector<std::byte> report(const SyncId& id);
  /// At the coordinator. `counts`: this is the first DONE of that member for that round. RETURNS:
  /// false when bytes of this form belong to another run.
  [[nodiscard]] bool take_report(WorkerId from, std::span<const std::byte> bytes, bool counts);
  /// At the coordinator: a round is committed.
  void choose_next(const SyncId& id);
  /// The bytes that follow in a round's COMMIT.
  [[nodiscard]] std::vector<std::byte> told_with(const SyncId& id) const;
  /// Takes the bytes that followed in a round's COMMIT. RETURNS: false when they are of another
  /// run.
  [[nodiscard]] bool take_told(const SyncId& id, std::span<const std::byte> bytes);
  /// The error text for bytes that cannot be read.
  [[nodiscard]] std::string of_unlike_files() const;
  /// A round of membership number `epoch` is final here: the fragment's next round uses the shares
  /// of its COMMIT.
  void adopt(const SyncId& id, std::uint32_t epoch);
  /// At the coordinator: forgets the shares of rounds for which `needed` is false.
  void forget_told(const std::function<bool(const SyncId&)>& needed);

  /// At a hub: a commit from the log of the previous process.
  void restore(const HubRecord& record, const SyncId& id);
  /// All commits of the log have been restored.
  void end_restore();
  /// At the coordinator: the change of shares since the last call.
  [[nodiscard]] std::optional<ShareMove> take_move();

 private:
  struct NextShares {
    std::uint32_t epoch = 0;  // in which the shares hold
    std::vector<std::uint32_t> shares;
  };

  [[nodiscard]] bool moves() const { return options_.exchange.moves_shares; }

  const EngineOptions& options_;
  const MemberView& members_;
  std::optional<ArrivalGauge> gauge_;
  std::optional<MeasuredShares> measured_;             // at the coordinator
  std::map<SyncId, std::vector<std::uint32_t>> told_;  // by round, the shares in its COMMIT
  std::map<FragmentId, NextShares> next_;              // from the fragment's last COMMIT
};

}  // namespace isthmus
