// SPDX-License-Identifier: Apache-2.0
// Members that join and leave, in numbered memberships (membership.h). The coordinator decides and
// sends EPOCH to all; every member begins the uncommitted rounds again from its retained
// contributions. Without `elastic` the membership never changes, and this protocol does nothing.
// peer_losses.h tells the coordinator about lost members. Pure.
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
    ProxyRounds& proxies;
    Rollback& rollback;
    ReachabilityReports& reports;
    ControlSender& sender;
    std::vector<HubRecord>& decisions;  // a hub's records, to be written before any frame is sent
  };
  /// Takes a frame that was kept until its membership number was known.
  using Deliver = std::function<void(WorkerId from, FrameBytes bytes, TimePoint now, Outbox& out)>;

  MembershipProtocol(const EngineOptions& options, const Parts& parts, Deliver deliver)
      : options_(options), at_(parts), deliver_(std::move(deliver)) {}

  /// Whether a frame belongs to the current membership. Frames that concern no round always do. A
  /// frame with a newer membership number is kept until its EPOCH arrives.
  [[nodiscard]] bool accepts(WorkerId from, const FrameHeader& head, const FrameBytes& bytes,
                             TimePoint now, Outbox& out);
  /// Frame EPOCH.
  void take_epoch(WorkerId from, const Frame& frame, TimePoint now, Outbox& out);

  // At the coordinator.
  /// As in ExchangeEngine.
  bool admit(WorkerId joiner, std::int64_t after, TimePoint now, Outbox& out);
  bool release(WorkerId member, std::int64_t after, TimePoint now, Outbox& out);
  /// A member is lost: rounds begin again without it. If it was leaving and its rounds are final,
  /// nothing is missing and it only leaves.
  void exclude(WorkerId peer, const std::string& why, TimePoint now, Outbox& out);
  /// A leaving member has ended its rounds.
  void part_with(WorkerId peer, TimePoint now, Outbox& out);
  /// Sends the current membership to a process.
  void tell(WorkerId peer, Outbox& out);

  /// As in ExchangeEngine.
  void stand_aside();
  /// This member has lost all others, and the hub if there is one.
  void cut_off(const std::string& why);
  /// Memberships entered since the last call, one entry for each member that joined or left.
  [[nodiscard]] std::vector<Epoch> take_epochs() { return std::exchange(entered_, {}); }

  /// At a hub: the last news of the previous process; none: another run begins.
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
      ahead_;                       // with a membership number that is unknown here
  std::optional<TimePoint> asked_;  // when their news were requested, or the first such frame came
  std::vector<Epoch> entered_;      // and not taken
};

}  // namespace isthmus
