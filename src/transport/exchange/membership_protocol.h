// SPDX-License-Identifier: Apache-2.0
// Members that come and go, in epochs (membership.h): the coordinator decides and says EPOCH to
// all, and every member begins again, from retained inputs, the rounds that are not committed.
// Without `elastic` nobody comes or goes, and this protocol has nothing to do. What tells the
// coordinator that a member is gone: peer_losses.h. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/transport.h"
#include "transport/exchange/commit_protocol.h"
#include "transport/exchange/control_sender.h"
#include "transport/exchange/hub_record.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/membership.h"
#include "transport/exchange/moving_shares.h"
#include "transport/exchange/peer_exchange_options.h"
#include "transport/exchange/proxy_rounds.h"
#include "transport/exchange/reachability_reports.h"
#include "transport/exchange/rollback.h"
#include "transport/exchange/round_table.h"
#include "transport/wire/frame.h"

namespace isthmus {

class MembershipProtocol {
 public:
  /// The parts of the engine that a change of members concerns; borrowed.
  struct Parts {
    MemberView& members;
    RoundTable& rounds;
    CommitProtocol& commit;
    MovingShares& shares;
    ProxyRounds& proxies;
    Rollback& rollback;
    ReachabilityReports& reports;
    ControlSender& sender;
    std::vector<HubRecord>& decisions;  // a hub's, to be written down before anything is sent
  };
  /// Takes a frame that has waited for its epoch.
  using Deliver = std::function<void(WorkerId from, FrameBytes bytes, TimePoint now, Outbox& out)>;

  MembershipProtocol(const EngineOptions& options, const Parts& parts, Deliver deliver)
      : options_(options), at_(parts), deliver_(std::move(deliver)) {}

  /// Whether a frame is one of this membership. Frames about no round belong anywhere; those of an
  /// epoch still to be heard of wait for it.
  [[nodiscard]] bool accepts(WorkerId from, const FrameHeader& head, const FrameBytes& bytes,
                             TimePoint now, Outbox& out);
  /// Frame EPOCH.
  void take_epoch(WorkerId from, const Frame& frame, TimePoint now, Outbox& out);

  // At the coordinator.
  /// As ExchangeEngine's.
  bool admit(WorkerId joiner, std::int64_t after, TimePoint now, Outbox& out);
  bool release(WorkerId member, std::int64_t after, TimePoint now, Outbox& out);
  /// A member is gone: rounds begin again without it. Of one that takes leave nothing is missing
  /// any more once the rounds it was in are through.
  void exclude(WorkerId peer, const std::string& why, TimePoint now, Outbox& out);
  /// A member that takes leave has ended its rounds.
  void part_with(WorkerId peer, TimePoint now, Outbox& out);
  /// Tells a process the membership that counts.
  void tell(WorkerId peer, Outbox& out);

  /// This member takes part only once an epoch says so.
  void stand_aside();
  /// This member has lost all others, the hub too.
  void cut_off(const std::string& why);
  /// Epochs that have been entered since the last call, one entry for each member that has come or
  /// gone.
  [[nodiscard]] std::vector<Epoch> take_epochs() { return std::exchange(entered_, {}); }

  /// At a hub: the news of the process before; none: another run begins.
  void restore(std::optional<EpochNews> news);
  [[nodiscard]] const std::optional<EpochNews>& last_news() const { return news_; }

 private:
  void declare(EpochNews news, TimePoint now, Outbox& out);
  void remind(WorkerId peer, TimePoint now, Outbox& out);
  void ask_for_news(TimePoint now, Outbox& out);
  [[nodiscard]] bool means_own_results(const EpochNews& news) const;
  void enter(const EpochNews& news, TimePoint now, Outbox& out);
  void note_changes(const EpochNews& news);
  void relaunch(OpenRound& open, TimePoint now, Outbox& out);
  [[nodiscard]] const Membership& membership() const { return at_.members.membership(); }

  const EngineOptions& options_;
  const Parts at_;
  const Deliver deliver_;
  std::optional<EpochNews> news_;  // at the coordinator: the last one
  std::vector<std::pair<WorkerId, FrameBytes>>
      ahead_;                       // of epochs that this member does not know yet
  std::optional<TimePoint> asked_;  // for the news of them, or the first such came
  std::vector<Epoch> entered_;      // and not taken
};

}  // namespace isthmus
