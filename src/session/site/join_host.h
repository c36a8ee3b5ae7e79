// SPDX-License-Identifier: Apache-2.0
// The donor's side of a join (site 0, or with a hub the first site that is there): it takes a
// newcomer into a run that goes on, and nobody stands still
// meanwhile. A newcomer whose links stand is given this worker's state after some step, then the
// result of every round this worker takes after that. It replays them (session/site/newcomer.h);
// once it has caught up, all sites agree on a step after which it takes part. One newcomer at a
// time, in the order in which they come. Results go as the round's members decode them, and at most
// eight times the model is on its way or waits at the newcomer for its turn: one that falls half as
// far behind is given the state without regard to rounds, one that falls further behind starts
// over, and is turned away for good when that has not helped twice.
//
// The state comes from all sites: this one says that it lays down its own at the end of the window
// of H steps it is in, or in about 10 s where that is sooner; the others do the same and give what
// is alike (session/site/state_source.h).
//
// One that dies before it has the whole state may come back to the same one, to replay what it has
// missed: results are kept for it, at most half as many bytes as the state has and as long as the
// state is kept, and sent where they are fewer than what it has on its disk
// (session/run/saved_pieces.h); else the next one begins with a state of then.
//
// Where a site that is lost takes back the steps since the last commit, results go all the same
// when this site has them, and a newcomer that was given some of those steps starts over. The step
// after which it takes part is one after which all commit, and it trains once it has heard that it
// is over.
//
// With a hub, which answers HELLO, asks all and says EPOCH, this side wishes only.
//
//   newcomer                         site 0                              other sites
//     | -- HELLO --------------------> |
//     | <------------------- RUNNING --|
//     |  links to all who are live, all of whom have answered its HELLO
//     | -- JOIN ---------------------> |
//     |                                | -- PREPARE (step T) -------------------> |
//     | <-------------- OFFER, TABLE --| -- TABLE ------------------------------> |
//     | <------------------------------------------------------- HOLDS -----------|
//     | -- GET, ... <----- PIECE, ... -|  the same to and from the others, which say HOLDS
//     | -- ENOUGH -------------------> |  and to them
//     | <-------- RESULT, REACHED, ... |
//     | -- TAKEN ... ----------------> |  results that it has replayed
//     | -- CAUGHT UP ----------------> | -- ASK, HOLD: how far have you come? --> |
//     | <----- EPOCH, AGREED (step K) -|-- EPOCH, AGREED -----------------------> |
//     |  contributes to rounds sent after step K, like anybody
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

class JoinHost {
 public:
  struct Options {
    WorkerId self;
    std::vector<std::string> sites;  // names, in member order
    std::string run_id;
    std::string session;  // of a hub
    HelloNote own;        // what this site has in common with all
    /// Any task.
    std::function<void(WorkerId to, const Note&)> send;
    /// All sites shall agree on a step after which the newcomer takes part: `agreed` is the answer.
    std::function<void(const WishNote&)> wish;
    /// RETURNS: whether it could be. Empty: a hub admits, and `entered` tells of it first.
    std::function<bool(WorkerId joiner, std::int64_t after)> admit;
    std::function<std::vector<bool>()> live;  // by site
    std::function<double()> clock_s;          // of the run, so far
    std::int64_t rounds_every = 1;            // steps: H
    std::int64_t window = 1;  // rounds are applied at most so many steps after they were sent
    std::int64_t total_steps = 0;
    /// Bytes of results that may be on their way, however small the model.
    std::uint64_t least_under_way = std::uint64_t{256} << 20;
  };
  /// Borrows `source`, which gives this site's state.
  JoinHost(Options options, StateSource& source);

  // From the links' task.
  void hello(WorkerId from, const HelloNote& note);
  /// A JoinNote, TakenNote or CaughtUpNote; others are none of its business.
  void receive(WorkerId from, const Note& note);
  void lost(WorkerId site);
  /// By a hub: it takes part in rounds sent after this step.
  void entered(WorkerId site, std::int64_t after);
  /// The hub's next process has not heard of a wish.
  void hub_back();
  /// The run ends, or `goes_on` without this site: newcomers are told. Any task.
  void close(bool goes_on = false);
  /// The newcomer takes part in rounds sent after this step, which nobody has begun: it is admitted
  /// before this returns. RETURNS: false where it has gone meanwhile. Any task.
  bool agreed(std::int64_t after);

  /// From the worker, between two steps. `stands`: no site goes beyond step t for now; then the
  /// state is of here, and this is called again and again.
  void after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy,
                  ForwardingExchange& exchange, bool stands = false);
  /// From the worker, which goes on after step t: what it has taken since does not count. Who has
  /// been given results of it starts over.
  void gone_back(StepIndex t);

 private:
  enum class Phase {
    kNobody,
    kWanted,     // its links stand
    kPreparing,  // the others have been told after which step a state is for it
    kOffering,   // that state is being written
    kReplays,    // it has been offered a state
    kAgreeing,   // on the step
    kAdmitted,   // rounds sent before may still end
  };
  void next();
  void take_in(WorkerId from, const JoinNote& note);
  /// Whether somebody is in the run whom a newcomer has not found.
  [[nodiscard]] bool lacks(WorkerId newcomer, const JoinNote& note) const;
  void turn_away(WorkerId site, const std::string& why, bool again = false);
  [[nodiscard]] WishNote wish_of_joiner() const;
  /// Everybody else in the run.
  [[nodiscard]] std::vector<WorkerId> others() const;
  void prepare(StepIndex t);
  void tell(WorkerId site);
  /// Whether the newcomer goes on with the state that is kept for it.
  [[nodiscard]] bool comes_back() const;
  /// What kept_ has.
  void offer(ForwardingExchange& exchange);
  void send_result(std::span<const std::byte> bytes);
  /// For one that may come back.
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
  JoinNote note_;  // its
  std::deque<std::pair<WorkerId, JoinNote>> waiting_;
  StepIndex offer_after_;       // not before this step
  std::vector<WorkerId> told_;  // that, and the table
  /// A state that is offered, until the newcomer has it all.
  struct Kept {
    WorkerId newcomer;
    StepIndex after, prepared;
    double clock_s = 0;
    PieceTable table;
    Digest128 digest;                             // of the table
    std::vector<std::vector<std::byte>> results;  // since
    std::uint64_t result_bytes = 0;
    bool away = false;  // the newcomer
  };
  std::optional<Kept> kept_;
  std::map<WorkerId, int> fell_behind_;  // how often in a row
  std::uint64_t most_under_way_ = 0;     // bytes of results
  std::uint64_t sent_ = 0;               // the same, so far
  std::uint64_t taken_ = 0;              // of them by the newcomer
  std::int64_t admitted_after_ = 0;
  std::atomic<bool> closed_ = false;
  // The worker's alone:
  std::optional<std::pair<StepIndex, double>> last_step_;  // that was told of, and when on clock_s
  std::optional<double> step_s_;                           // what a step has lately taken
  bool forwards_ = false;
  std::uint32_t streams_ = 0;  // sent to this newcomer
};

}  // namespace isthmus::app
