// SPDX-License-Identifier: Apache-2.0
// The donor's side of a join: it takes a joiner into a running run, and no site pauses meanwhile.
// The donor is site 0, or with a hub the first site present. A joiner with open links receives the
// donor's state after some step, then the result of every later round of the donor. It replays
// these results (session/site/joiner.h). Once it has caught up, all sites agree on a step after
// which it takes part. The donor serves one joiner at a time, in order of arrival. Results are sent
// as the round's members decode them. At most eight times the model's size may be in flight or wait
// at the joiner. A joiner that falls half as far behind gets the state at full rate, also during
// rounds. A joiner that falls further behind starts over, and is refused after the third time.
//
// The state comes from all sites. The donor announces the step at which it will save its own state:
// the end of the current window of H steps, or about 10 s ahead if that is sooner. The other sites
// save theirs at the same step and serve the parts that are equal (session/site/state_source.h).
//
// A joiner that dies before it has the whole state may return to the same state and replay the
// results that it missed. The donor keeps these results as long as it keeps the state, up to half
// as many bytes as the state has. It uses them if they are fewer bytes than the joiner has saved on
// its disk (session/run/partial_state_file.h); otherwise the returning joiner gets a new state.
//
// If a loss rolls back the steps since the last commit, the donor still sends results as soon as it
// has them, and a joiner that received rolled-back steps starts over. The step after which it takes
// part is then a step at which all commit, and it trains only once it knows that this step has
// ended.
//
// With a hub, which answers HELLO, coordinates the agreement and sends EPOCH, the donor only sends
// wishes.
//
//   joiner                           donor                               other sites
//     | -- HELLO --------------------> |
//     | <------------------- RUNNING --|
//     |  links to all live sites, all of which have answered its HELLO
//     | -- JOIN ---------------------> |
//     |                                | -- PREPARE (step T) -------------------> |
//     | <-------------- OFFER, TABLE --| -- TABLE ------------------------------> |
//     | <------------------------------------------------------- HOLDS -----------|
//     | -- GET, ... <----- PIECE, ... -|  the same to and from the others, which say HOLDS
//     | -- ENOUGH -------------------> |  and to them
//     | <-------- RESULT, REACHED, ... |
//     | -- TAKEN ... ----------------> |  bytes of results replayed so far
//     | -- CAUGHT UP ----------------> | -- ASK, HOLD: how far have you come? --> |
//     | <----- EPOCH, AGREED (step K) -|-- EPOCH, AGREED -----------------------> |
//     |  contributes to rounds sent after step K, like any member
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "session/site/site_notes.h"
#include "session/site/state_source.h"
#include "transport/exchange/catch_up/joining_exchange.h"

namespace isthmus::app {

class StateDonor {
 public:
  struct Options {
    WorkerId self;
    std::vector<std::string> sites;  // names, in member order
    std::string run_id;
    std::string session;  // of the hub, if there is one
    HelloNote own;        // values that must be equal at all sites
    /// Any task.
    std::function<void(WorkerId to, const Note&)> send;
    /// Asks all sites to agree on a step after which the joiner takes part: `agreed` is the answer.
    std::function<void(const WishNote&)> wish;
    /// RETURNS: false when the joiner could not be admitted. Empty: a hub admits, and `entered`
    /// tells of it first.
    std::function<bool(WorkerId joiner, std::int64_t after)> admit;
    std::function<std::vector<bool>()> live;  // by site
    std::function<double()> clock_s;          // of the run, so far
    std::int64_t rounds_every = 1;            // steps: H
    std::int64_t window = 1;  // a round is applied at most this many steps after it was sent
    std::int64_t total_steps = 0;
    /// Lower bound for the bytes of results in flight, for small models.
    std::uint64_t least_under_way = std::uint64_t{256} << 20;
  };
  /// Borrows `source`, which serves this site's state.
  StateDonor(Options options, StateSource& source);

  // From the links' task.
  void hello(WorkerId from, const HelloNote& note);
  /// Handles JoinNote, TakenNote and CaughtUpNote; ignores all other notes.
  void receive(WorkerId from, const Note& note);
  void lost(WorkerId site);
  /// With a hub: the site takes part in rounds sent after this step.
  void entered(WorkerId site, std::int64_t after);
  /// The hub's next process has connected: sends an open wish again.
  void hub_back();
  /// The run ends, or this site leaves it (`goes_on`): tells the joiners. Any task.
  void close(bool goes_on = false);
  /// The joiner takes part in rounds sent after step `after`, none of which has begun: it is
  /// admitted before the call returns. RETURNS: false when the joiner has left. Any task.
  bool agreed(std::int64_t after);

  /// Called by the worker between two steps. `stands`: all sites pause after step t; the state is
  /// then taken here, and the call repeats until they continue.
  void after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy,
                  ForwardingExchange& exchange, bool stands = false);
  /// Called by the worker, which continues after step t: later steps do not count. A joiner that
  /// received results of such steps starts over.
  void gone_back(StepIndex t);

 private:
  enum class Phase {
    kNobody,
    kWanted,     // its links are open
    kPreparing,  // the others know the step of the state
    kOffering,   // the state is being written
    kReplays,    // it has been offered the state
    kAgreeing,   // on its first step
    kAdmitted,   // earlier rounds may still end
  };
  void next();
  void take_in(WorkerId from, const JoinNote& note);
  /// Whether the joiner has not linked to some site of the run.
  [[nodiscard]] bool lacks(WorkerId newcomer, const JoinNote& note) const;
  void turn_away(WorkerId site, const std::string& why, bool again = false);
  [[nodiscard]] WishNote wish_of_joiner() const;
  /// All other sites of the run.
  [[nodiscard]] std::vector<WorkerId> others() const;
  void prepare(StepIndex t);
  void tell(WorkerId site);
  /// Whether the joiner continues with the state that is kept for it.
  [[nodiscard]] bool comes_back() const;
  /// Offers the state in kept_.
  void offer(ForwardingExchange& exchange);
  void send_result(std::span<const std::byte> bytes);
  /// For a joiner that may return.
  void keep(const std::vector<std::byte>& result);
  void keep_no_more();
  void fall_behind();
  void forward(const SyncId& id, const Reduced& result, std::span<const EncodedShare> encoded);

  const Options options_;
  StateSource& source_;
  std::mutex mutex_;
  // Under mutex_:
  Phase phase_ = Phase::kNobody;
  WorkerId joiner_;
  JoinNote note_;  // the joiner's
  std::deque<std::pair<WorkerId, JoinNote>> waiting_;
  StepIndex offer_after_;       // not before this step
  std::vector<WorkerId> told_;  // received PREPARE and the table
  /// An offered state, kept until the joiner has all of it.
  struct Kept {
    WorkerId newcomer;
    StepIndex after, prepared;
    double clock_s = 0;
    PieceTable table;
    Digest128 digest;                             // of the table
    std::vector<std::vector<std::byte>> results;  // since the state
    std::uint64_t result_bytes = 0;
    bool away = false;  // the joiner is lost
  };
  std::optional<Kept> kept_;
  std::map<WorkerId, int> fell_behind_;  // how often in a row
  std::uint64_t most_under_way_ = 0;     // bytes of results
  std::uint64_t sent_ = 0;               // bytes of results so far
  std::uint64_t taken_ = 0;              // of these, replayed by the joiner
  std::int64_t admitted_after_ = 0;
  std::atomic<bool> closed_ = false;
  // The worker's alone:
  std::optional<std::pair<StepIndex, double>> last_step_;  // last step seen, and its clock_s
  std::optional<double> step_s_;                           // recent duration of a step
  bool forwards_ = false;
  std::uint32_t streams_ = 0;  // sent to this joiner
};

}  // namespace isthmus::app
