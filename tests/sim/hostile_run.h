// SPDX-License-Identifier: Apache-2.0
// One run of rounds in virtual time to which a schedule happens: the real exchanges of sites and,
// with one, of a hub with its real log, over simulated links. What sites and hub say to one another
// in notes, about steps and states, is played by a director who knows everything: who joins is
// handed what the others have applied, and nobody begins a round too early for it.
//
// Held against the promises, as it happens: all who get a round's result get the same contributors
// and bits, those of the naive mean; each member applies every round once and in order, over all
// its processes; what was sent for a round is the closed form's; no wait passes its deadline, nor
// comes to it; what a hub has written down is what was applied. Once faults have stopped all are
// together again within a stated time, and so are kLastRounds rounds of all of them.
//
// Where rounds have a deadline (hostile_late.cpp), contributions weigh the windows that were
// trained, and the mean is the weighted one. Who is late is told so, no sooner than its deadline,
// and is in no such round; everyone else who took part is. What a round has not counted comes with
// the next contribution or is dropped; at the end every window was counted once, or dropped, or is
// still in hand.
#pragma once

#include <array>
#include <climits>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "hostile_schedule.h"
#include "session/hub/hub_log.h"
#include "sim/network.h"
#include "sim/world.h"
#include "torn_storage.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/skewed_clock.h"

namespace isthmus::testing_support {

/// What came about, for tests of the sweep itself.
struct HostileTally {
  int rounds = 0;  // with a result
  int priced = 0;  // of these: whose bytes were held against the closed form
  int crashes = 0, leaves = 0, hub_crashes = 0, torn = 0;  // that took place
  int left_out = 0;          // sites that lived and were counted as gone
  int joins = 0;             // processes that came in later
  bool nobody_left = false;  // all were gone at once: the run ended there
  int stood_in = 0;          // rounds begun in the name of a site that was late
  int met = 0;               // of these: whose result that site then found
  int skipped = 0;           // steps of those
  int carried = 0;           // windows that came with a later round
  int lone = 0;              // windows trained alone
  int without_in_a_row = 0;  // at most, at the end, of a site that carries and a fragment
  FaultCounts frames;
  Duration whole{0};  // from the end of all faults until all were together
};

class HostileRun {
 public:
  explicit HostileRun(const HostileSchedule& schedule);
  ~HostileRun();
  HostileRun(const HostileRun&) = delete;
  HostileRun& operator=(const HostileRun&) = delete;

  /// RETURNS: what was not as promised; nothing: all was.
  [[nodiscard]] std::vector<std::string> play();
  [[nodiscard]] const HostileTally& tally() const { return tally_; }
  [[nodiscard]] std::uint64_t trace_hash() const { return world_.trace_hash(); }

 private:
  static constexpr int kNoEnd = INT_MAX;
  static constexpr int kLastRounds = 6;
  static constexpr int kLastLateRounds = 20;  // with a deadline
  /// What one process of a site makes of its windows.
  struct Mass {
    std::array<int, 2> window{};   // by fragment: trained and given to no round
    std::array<int, 2> carried{};  // the same, to be given again
    std::map<int, int> given;      // by round, while that is under way
    int received = 0, made = 0, dropped = 0, handed_over = 0;
  };
  struct Site {
    int life = 0;
    bool alive = false;
    bool aside = false;    // stands aside: it has to be admitted
    bool waits = false;    // for the state of before
    bool out = false;      // it has been told that the others count it as gone
    std::set<int> met_by;  // a joiner: processes that stand in touch with it
    std::string why;       // it is out
    int asked = -1;        // the life for which admission was asked
    int admitted = -1;     // the life that has been a member by that
    bool entered = true;   // knows of the epoch that held it up
    int begun = 0, taken = 0;
    int last = kNoEnd;                 // it leaves before this round
    std::optional<TimePoint> back_at;  // its next process
    std::optional<TimePoint> lost_hub;
    TimePoint epoch_at;  // somebody came or went
    std::unique_ptr<Transport> endpoint;
    PeerExchange* exchange = nullptr;
    std::map<int, Digest128> applied;  // on its disk, by round
    std::map<int, Mass> masses;        // by life
    int lone_windows = 0;              // it may train alone until it takes part again
  };
  struct Hub {
    bool alive = false;
    int life = 0;
    std::unique_ptr<Transport> endpoint;
    PeerExchange* exchange = nullptr;
    std::optional<TimePoint> back_at;
    std::map<int, TimePoint> gone_at;  // members that count as gone then, unless they are met
    std::vector<bool> live;            // members, as it (or member 0) has decided
    std::set<int> leaving;             // of these
    std::vector<HubRecord> written;    // by all its processes, where they did not die over it
  };
  struct Result {
    std::vector<WorkerId> contributors;
    Digest128 digest;
    std::map<int, std::uint64_t> payload;  // by member
    std::map<int, int> lives;              // the same: which process took it
  };

  // What sites and hub do (hostile_sites.cpp).
  void start_site(int m, bool joins);
  void site_body(int m, int life);
  void train(int m, PeerExchange& exchange, Runtime& runtime);
  [[nodiscard]] bool wait_for_oldest(int m, PeerExchange& exchange, Runtime& runtime);
  void take_over(int m);
  bool wait_for_word(int m, const std::function<bool()>& ready);
  void start_hub();
  void run_hub(int life);
  void read_history(std::span<const HubRecord> history);
  void on_back(int self, WorkerId peer);
  void greet(int m);
  void on_lost(int self, WorkerId peer);
  void on_epoch(int self, const Epoch& epoch);

  // The director (hostile_run.cpp).
  void direct();
  void happen(const HostileSchedule::Event& event);
  void bring_back();
  void look_after_hub();
  void end_those_left_out_unheard();
  void admit_and_release();
  void crash_site(int m);
  void crash_hub();
  void hold();
  void let_go();
  [[nodiscard]] bool all_together() const;
  [[nodiscard]] bool all_through() const;
  [[nodiscard]] bool nobody_left() const;
  [[nodiscard]] bool held_up() const;
  [[nodiscard]] bool met_by_all(int m) const;
  [[nodiscard]] int absent() const;
  void coordinate(const std::function<void(PeerExchange&)>& call);
  [[nodiscard]] bool coordinator_stands() const;
  [[nodiscard]] PeerExchange& coordinator();
  [[nodiscard]] bool counts_as_member(int m) const;
  void see_members(std::vector<bool> live);

  // Where rounds have a deadline (hostile_late.cpp).
  void add_deadline(int self, PeerExchangeOptions& options);
  void take_window(int m, PeerExchange& exchange, Runtime& runtime);
  void train_alone(int m, Runtime& runtime);
  [[nodiscard]] double give(int m, int round);
  void settle(int m, int round, bool counted);
  void hand_over(int m);
  void take_stood_in(int m, int life, const ProxyRound& told);
  [[nodiscard]] bool may_be_without(int m, int round) const;
  [[nodiscard]] std::vector<double> weights_of(int round,
                                               const std::vector<WorkerId>& contributors);
  void check_masses();
  void check_last_contributions();

  // What is held against the promises (hostile_checks.cpp).
  void blame(const std::string& what);
  void take_result(int m, int round, Reduced reduced);
  void check_payload(int round);
  void check_end();
  void check_log();
  [[nodiscard]] bool may_be_left_out() const;
  [[nodiscard]] std::string state() const;

  [[nodiscard]] Site& of(int m) { return sites_[static_cast<std::size_t>(m)]; }
  [[nodiscard]] const Site& of(int m) const { return sites_[static_cast<std::size_t>(m)]; }
  [[nodiscard]] TimePoint now() const { return world_.clock().now(); }
  [[nodiscard]] static SyncId id_of(int round) {
    return {FragmentId(round % 2), StepIndex(1 + round / 2)};
  }
  [[nodiscard]] static int first_after(std::int64_t step) { return static_cast<int>(2 * step); }
  [[nodiscard]] static int round_of(const SyncId& id) {
    return first_after(id.sent.value() - 1) + id.fragment.value();
  }
  /// With a deadline a fragment has one size.
  [[nodiscard]] std::size_t size_of(int round) const {
    return 5000 + static_cast<std::size_t>(round % (schedule_.has_deadline() ? 2 : 3)) * 4000;
  }
  [[nodiscard]] PeerExchangeOptions options_of(int self);
  [[nodiscard]] int group_of(int process, int life) const {
    return process + life * schedule_.processes();
  }

  const HostileSchedule schedule_;
  std::shared_ptr<const Codec> codec_;
  SimWorld world_;
  std::unique_ptr<SimNetwork> network_;
  std::unique_ptr<WaitQueue> changed_;  // what sites and hub wait for beside frames
  TornStorage disk_;                    // of the hub
  std::vector<Site> sites_;
  Hub hub_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::deque<HostileSchedule::Event> events_;
  std::deque<int> leavers_;           // that wait to be released
  std::optional<std::int64_t> held_;  // nobody begins a round sent later before it knows more
  int joiner_ = -1, leaver_ = -1;     // for whom
  int last_round_ = kNoEnd;           // the run ends before it
  bool over_ = false;
  bool in_director_ = false;
  std::map<int, Result> results_;
  std::map<std::tuple<std::vector<WorkerId>, std::size_t, std::vector<double>>, Digest128> means_;
  struct Given {
    int life = 0;
    int windows = 0;
  };
  std::map<std::pair<int, int>, Given> given_;  // by round and member
  std::set<std::pair<int, int>> stood_in_;      // the same: whose training was late
  std::vector<std::string> blamed_;
  HostileTally tally_;
};

}  // namespace isthmus::testing_support
