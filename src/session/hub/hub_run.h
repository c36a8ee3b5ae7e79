// SPDX-License-Identifier: Apache-2.0
// One life of a hub: it gathers the sites of a run, commits their rounds, numbers memberships, and
// coordinates agreements on steps. It trains nothing and holds no model.
//
// All decisions are made by the task that calls `run`, and by the exchange below it, which logs
// them in HubLog before any site is told. A hub that has lost all of its sites, or was itself
// suspended, cannot tell which of the two happened: it begins anew from its log, as its next
// process would.
//
//   a site                                    the hub
//     | -- HELLO ----------------------------> |  all sites of a start: a session begins
//     | <---------------------------- START -- |
//     |  ... the hub dies; its next process reads the log ...
//     | -- STANDING (session) ---------------> |  of the run in the log?
//     | <-------- EPOCH, AGREED ..., SERVE -- |
//     | -- DONE, GONE again -----------------> |
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "isthmus/config.h"
#include "isthmus/runtime.h"
#include "session/hub/hub_enrolment.h"
#include "session/hub/hub_log.h"
#include "session/hub/hub_sessions.h"
#include "session/hub/hub_state.h"
#include "session/hub/hub_steps.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/links/network_transport.h"
#include "transport/links/relay/relay.h"
#include "transport/wire/epoch.h"

namespace isthmus::app {

class SiteRoutes;

class HubRun {
 public:
  using Options = HubOptions;
  enum class End {
    kAllLeft,  // the run has ended in order
    kAnew,     // to be begun again from the log
    kStopped,  // by request; the sites wait
  };
  /// Listens. Borrows all, except the relay. THROWS: ConfigError, SystemError for an unusable
  /// address or key.
  HubRun(Options options, HubLog& log);
  ~HubRun();
  HubRun(const HubRun&) = delete;
  HubRun& operator=(const HubRun&) = delete;

  /// Blocks until the run has ended. THROWS: PeerError when no site has connected within
  /// net.gather; ConfigError for sites of another run or with different configurations; SystemError
  /// when a decision could not be logged.
  [[nodiscard]] End run();

  /// The relay, for the next life after kAnew: relayed links between sites stay open, since sites
  /// that count each other as lost could not begin anew as a hub can. May be null.
  [[nodiscard]] std::unique_ptr<Relay> take_relay();

 private:
  struct Lost {
    WorkerId site;
    std::string why;
  };
  struct Back {
    WorkerId site;
  };
  struct Said {
    WorkerId from;
    std::vector<std::byte> bytes;
  };
  using Event = std::variant<Lost, Back, Said, Epoch, std::exception_ptr>;

  [[nodiscard]] std::unique_ptr<HubEnrolment> make_enrolment();
  void open_exchange();
  void push(Event event);
  void take(const Lost& lost);
  void take(const Back& back);
  void take(const Said& said);
  void take(const Epoch& epoch);
  void take(const std::exception_ptr& failure);
  void look_at_keys();
  void append(std::span<const HubRecord> records);
  void tell_board();
  void count_the_lost();
  void leave_out_who_stays_away();
  void say_who_is_awaited();
  [[nodiscard]] bool all_gone() const;

  HubState all_;
  HubSteps steps_{all_};
  HubSessions sessions_{all_, steps_};
  std::unique_ptr<WaitQueue> queue_;
  std::deque<Event> events_;  // under queue_'s lock

  // Of the task that runs:
  const std::unique_ptr<HubEnrolment> enrolment_;  // outlives the transport; null without keys
  const MemberOptions links_;
  /// A lost site may be the first sign that the hub itself was cut off or suspended. Silent links
  /// are found at heartbeats, so the links of one cut may be lost up to two heartbeats apart.
  const Duration others_follow_;
  std::uint64_t keys_version_ = 0;
  TimePoint begin_, next_word_;

  std::unique_ptr<SiteRoutes> routes_;  // outlive the transport
  std::unique_ptr<NetworkTransport> transport_;
  std::unique_ptr<PeerExchange> exchange_;
};

}  // namespace isthmus::app
