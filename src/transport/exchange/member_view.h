// SPDX-License-Identifier: Apache-2.0
// The members of a run as one member sees them: the current membership, the coordinator, and the
// state of each peer's process and link. The coordinator is member 0 or a hub, which has the number
// WorkerId(members) and takes part in no round. Only data and queries: membership_protocol.h and
// peer_losses.h make the decisions. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/transport.h"
#include "transport/exchange/membership.h"
#include "transport/exchange/peer_exchange_options.h"
#include "transport/wire/loss_cause.h"

namespace isthmus {

/// The state of one peer, as far as it is known here.
struct Peer {
  bool lost = false;
  bool left = false;
  std::optional<std::uint64_t> begun;  // rounds in all, from its BYE
  bool fresh = false;                  // its present process started after its membership ended
  bool unheard = false;                // at a hub: may be of another run, or absent
  std::string why;                     // cause of the loss
  LossCause cause = LossCause::kGone;
  std::optional<TimePoint> told;  // EPOCH was sent, since it was last behind
  std::int64_t closed_before = 0;
  TimePoint probe_at;    // not before
  Duration patience{0};  // timeout between probes; doubles while no probe brings anything
};

class MemberView {
 public:
  /// Borrows `options`, as all parts of an engine do.
  explicit MemberView(const EngineOptions& options);

  [[nodiscard]] WorkerId self() const { return options_.self; }
  [[nodiscard]] WorkerId coordinator() const {
    return WorkerId(options_.exchange.hub ? options_.members : 0);
  }
  [[nodiscard]] bool coordinates() const { return self() == coordinator(); }
  [[nodiscard]] bool is_hub() const { return options_.exchange.hub && coordinates(); }

  [[nodiscard]] const Membership& membership() const { return membership_; }
  /// Whether this process is a member; always true at a hub.
  [[nodiscard]] bool is_member() const { return is_member_; }
  /// A member now; never a hub.
  [[nodiscard]] bool live(WorkerId rank) const {
    return rank.value() < options_.members && membership_.live(rank);
  }
  /// The membership becomes `next`. RETURNS: whether this process was a member before.
  bool enter(const Membership& next);
  /// All are members, as at the start of a run.
  void restart() { membership_ = Membership(options_.members, options_.exchange.epoch, true); }
  /// This process becomes a non-member, as a joiner is before it is admitted.
  void stand_aside();

  [[nodiscard]] Peer& peer(WorkerId rank) { return peer_[static_cast<std::size_t>(rank.value())]; }
  [[nodiscard]] const Peer& peer(WorkerId rank) const {
    return peer_[static_cast<std::size_t>(rank.value())];
  }
  [[nodiscard]] std::size_t processes() const { return peer_.size(); }
  /// All members' numbers except this one's, without the hub.
  [[nodiscard]] std::vector<WorkerId> everyone_else() const;
  /// The other current members.
  [[nodiscard]] std::vector<WorkerId> peers() const;
  /// Whether the run can continue without `peer`. If not, a slow member is worth waiting for.
  [[nodiscard]] bool can_spare(WorkerId peer) const;
  /// Whether all peers have reported that their rounds sent at `sent` are final.
  [[nodiscard]] bool all_closed(StepIndex sent) const;
  /// Forgets the reported progress of the peers; each has to report it again.
  void forget_closed();

  /// This process has said goodbye.
  [[nodiscard]] bool leaving() const { return leaving_; }
  void set_leaving() { leaving_ = true; }

  /// Echoes sent to each process so far.
  [[nodiscard]] const std::vector<std::uint32_t>& echoes() const { return echoes_; }
  [[nodiscard]] std::uint32_t count_echo(WorkerId to) {
    return ++echoes_[static_cast<std::size_t>(to.value())];
  }

 private:
  const EngineOptions& options_;
  Membership membership_;
  bool is_member_ = true;
  std::vector<Peer> peer_;  // by process; the own entry is idle
  std::vector<std::uint32_t> echoes_;
  bool leaving_ = false;
};

}  // namespace isthmus
