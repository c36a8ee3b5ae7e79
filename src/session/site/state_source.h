// SPDX-License-Identifier: Apache-2.0
// The parts of its state that a site serves to a joiner. The donor (session/site/state_donor.h)
// serves all of its own state. Every other site saves its state after the step that the donor
// names, compares it with the donor's table of pieces, keeps the equal pieces and announces them to
// the joiner: the outer parameters and buffers of every method, with H = 1 nearly all. So no code
// needs to know which parts a method shares. A site keeps one state, for one joiner, until the
// joiner needs no more or has joined. A joiner that was lost in between may return to that state
// for a while (Options::keeps_for), until the donor names another state.
//
// A DonorThrottle limits the rate; a StateServer sends. All calls from any task.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "session/site/site_notes.h"
#include "transport/exchange/catch_up/donor_throttle.h"
#include "transport/exchange/catch_up/piece_table.h"
#include "transport/wire/note_stream.h"

namespace isthmus::app {

/// Longest time to keep a state: the copy is as large as a checkpoint, and in memory.
inline constexpr Duration kMostKeeps = std::chrono::minutes(10);

class StateSource {
 public:
  struct Options {
    std::vector<std::string> sites;  // names, in member order
    std::optional<double> bits_per_s;
    /// Any task.
    std::function<void(WorkerId to, const Note&)> send;
    Duration keeps_for = kMostKeeps;  // for a lost joiner
  };
  explicit StateSource(Options options);

  /// Handles PrepareNote and TableNote of the donor, GetNote and EnoughNote of the joiner; ignores
  /// all other notes.
  void receive(WorkerId from, const Note& note);
  /// `site` has joined, or was refused: if it was the joiner, or the donor, drops the state.
  void forget(WorkerId site);
  /// `site` is lost: as `forget`, but a joiner's finished state is kept for a while.
  void lost(WorkerId site, TimePoint now);
  /// Whether a state for this joiner is ready.
  [[nodiscard]] bool serves(WorkerId newcomer) const;
  /// Whether a joiner is being taken in, even if it needs no more parts from here.
  [[nodiscard]] bool takes_in() const;
  /// At the donor: the joiner has returned for the state that is kept.
  void returned(WorkerId newcomer);
  /// Called by the worker between two steps: drops a state that was kept long enough.
  void expire(TimePoint now);

  /// Called by the worker between two steps: saves the state if a donor has requested it. That
  /// needs as much memory as the state; without that memory the other sites serve it.
  void after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy);
  /// At the donor: serves all of `state`. RETURNS: its pieces.
  [[nodiscard]] PieceTable hold(WorkerId newcomer, std::vector<std::byte> state);

  /// The joiner falls behind: without a configured rate, parts are sent at full rate, also during
  /// rounds.
  void hurry(WorkerId newcomer);
  /// Drops the requests: their parts could not be sent.
  void forget_asked();
  /// The next part to send, if the throttle allows one now. `round_open`: at this site. Takes long
  /// when the table arrived after the state: it compares both.
  [[nodiscard]] std::optional<std::pair<WorkerId, PieceNote>> next(TimePoint now, bool round_open);
  /// While parts wait: when to call next() again at the latest; otherwise nothing.
  [[nodiscard]] std::optional<TimePoint> due() const;

 private:
  void prepare(WorkerId from, const PrepareNote& note);
  void say_holds() const;
  void take_table(const TableNote& note);
  void get(const GetNote& note);
  /// Once table and state are here: keeps the equal pieces. Without the lock; not on a receiving
  /// task.
  void compare();
  /// No joiner is being taken in.
  void drop();
  /// The joiner needs no more from here, or there is nothing to serve.
  void give_no_more();

  const Options options_;
  mutable std::mutex mutex_;
  // Under mutex_:
  DonorThrottle pace_;
  std::uint64_t number_ = 0;  // counts joiners
  std::optional<WorkerId> newcomer_;
  std::optional<WorkerId> donor_;        // of a state that is not this site's
  std::optional<StepIndex> prepared_;    // the step that the donor has named
  std::optional<TimePoint> kept_until_;  // while the joiner is lost
  std::optional<StepIndex> after_;       // the state is to be saved; not before this step
  NoteStreamAssembler tables_;
  std::optional<PieceTable> table_;                   // the donor's
  std::optional<std::vector<std::byte>> state_;       // this site's; after `compare` equal pieces
  PieceTable own_;                                    // of state_; until `compare`
  std::vector<std::optional<std::uint64_t>> places_;  // by piece: its offset in state_
  bool serves_ = false;
  bool over_ = false;  // this joiner is served no more
  bool hurries_ = false;
  std::deque<GetNote> asked_;
};

}  // namespace isthmus::app
