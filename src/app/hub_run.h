// SPDX-License-Identifier: Apache-2.0
// One life of a hub: it gathers the sites of a run, says which of their rounds are final, numbers
// who is there, and asks for the steps that all agree on. It trains nothing and holds no model.
//
// Everything is decided by the one task that calls `run`, and by the exchange below it, which
// writes its decisions down through HubLog before anybody is told. A hub that has lost all of its
// sites, or has stood still itself, cannot tell which of the two it was: it begins anew from its
// log, as its next process would.
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

#include "app/commands.h"
#include "app/hub_board.h"
#include "app/hub_enrolment.h"
#include "app/hub_keys.h"
#include "app/hub_log.h"
#include "app/site_agreement.h"
#include "isthmus/config.h"
#include "isthmus/runtime.h"
#include "transport/epoch.h"
#include "transport/network_transport.h"
#include "transport/peer_exchange.h"
#include "transport/relay.h"

namespace isthmus::app {

class SiteRoutes;

class HubRun {
 public:
  struct Options {
    const Config& config;
    const SiteArguments& links;  // listen, key_file
    HubKeys* keys = nullptr;     // where sites have keys
    HubBoard* board = nullptr;   // is told how it goes
    std::function<bool()> stopped;
    Runtime& runtime;
    std::unique_ptr<Relay> relay = nullptr;  // of the life before
  };
  enum class End {
    kAllLeft,  // the run has ended in order
    kAnew,     // to be begun again from the log
    kStopped,  // as it was asked to; the sites wait
  };
  /// Listens. Borrows all but the relay. THROWS: ConfigError, SystemError for an address or key
  /// that cannot be used.
  HubRun(Options options, HubLog& log);
  ~HubRun();
  HubRun(const HubRun&) = delete;
  HubRun& operator=(const HubRun&) = delete;

  /// Blocks until the run has ended. THROWS: PeerError when none has come within net.gather;
  /// ConfigError for sites of another run or unlike configurations; SystemError when a decision
  /// could not be written down.
  [[nodiscard]] End run();

  /// For the next life, which `run` has asked for: links between sites that pass there need not
  /// break, and sites that count each other as gone could not begin anew as a hub can. May be null.
  [[nodiscard]] std::unique_ptr<Relay> take_relay();

 private:
  struct Lost {
    Rank site;
    std::string why;
  };
  struct Back {
    Rank site;
  };
  struct Said {
    Rank from;
    std::vector<std::byte> bytes;
  };
  using Event = std::variant<Lost, Back, Said, Epoch, std::exception_ptr>;
  struct Site {
    std::optional<HelloNote> hello;  // of a process that is not in the run
    bool standing = false;           // in the run, and heard
    std::optional<std::pair<TimePoint, std::string>> lost;
  };

  [[nodiscard]] std::unique_ptr<HubEnrolment> make_enrolment(const Options& options);
  void open_exchange();
  void push(Event event);
  void take(const Lost& lost);
  void take(const Back& back);
  void take(const Said& said);
  void take(const Epoch& epoch);
  void take(const std::exception_ptr& failure);
  void hear(Rank from, const HelloNote& note);
  void hear(Rank from, const StandingNote& note);
  void hear(Rank from, const WishNote& note);
  void answer_newcomer(Rank site);
  void begin_session();
  /// A start waits for the sites that are let in, or invited.
  [[nodiscard]] bool is_awaited(Rank site) const;
  [[nodiscard]] bool all_have_come() const;
  void look_at_keys();
  void append(std::span<const HubRecord> records);
  void tell_board();
  void agree_anew();
  /// The next site in line for a step to join at.
  void ask_for_joiner();
  void drive(const std::function<void(NotesOut&)>& step);
  void admit(StepIndex after);
  void count_the_lost();
  void leave_out_who_stays_away();
  void say_who_is_awaited();
  [[nodiscard]] bool all_gone() const;
  [[nodiscard]] bool anybody_stands() const;
  [[nodiscard]] std::vector<int> live_sites(Rank except) const;
  [[nodiscard]] TimePoint now() const { return runtime_.clock().now(); }
  [[nodiscard]] Site& site(Rank rank) { return sites_[static_cast<std::size_t>(rank.value())]; }
  [[nodiscard]] const std::string& name(Rank rank) const {
    return config_.sites[static_cast<std::size_t>(rank.value())].name;
  }
  void send(Rank to, const Note& note) { exchange_->note(to, write_note(note)); }

  const Config& config_;
  HubKeys* const keys_;
  HubBoard* const board_;
  const std::function<bool()> stopped_;
  HubLog& log_;
  const HelloNote own_;  // what this hub's file has in common with those of all sites
  Runtime& runtime_;
  std::unique_ptr<WaitQueue> queue_;
  std::deque<Event> events_;  // under queue_'s lock

  // Of the task that runs:
  std::optional<HubLogContents::Session> session_;
  const std::unique_ptr<HubEnrolment> enrolment_;  // outlives the transport; null without keys
  const MemberOptions links_;
  /// A lost site may be the first sign that it is the hub that was cut off or stood still. Silent
  /// links are found with every heartbeat, so those of one cut may be lost up to two apart.
  const Duration others_follow_;
  std::vector<Site> sites_;
  std::vector<bool> live_;
  std::optional<SiteAgreement> agreement_;  // of the session
  std::deque<WishNote> joiners_;            // the first is being agreed on
  bool nobody_left_ = false;                // all were lost or started anew, one after another
  std::uint64_t keys_version_ = 0;
  TimePoint begin_, next_word_;
  std::optional<TimePoint> first_stands_;

  std::unique_ptr<SiteRoutes> routes_;  // outlive the transport
  std::unique_ptr<NetworkTransport> transport_;
  std::unique_ptr<PeerExchange> exchange_;
};

}  // namespace isthmus::app
