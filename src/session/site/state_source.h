// SPDX-License-Identifier: Apache-2.0
// What a site gives of its state to one that joins. The donor (session/site/join_host.h) has all of
// its own state at hand. Every other site of the run lays down its state after the step that the
// donor names, holds it against the donor's table of pieces, keeps what is the same and tells the
// newcomer which that is: the outer parameters and buffers of every method, with H = 1 nearly
// everything. Nobody needs to know which parts a method shares. A site keeps one state, for one
// newcomer, until that has all it wants or has joined. One that has gone in the middle may come
// back to it for a while (Options::keeps_for), until the donor names another state.
//
// Parts go at a DonorThrottle, sent by a StateServer. All calls from any task.
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

/// A copy is as large as a checkpoint, and in memory.
inline constexpr Duration kMostKeeps = std::chrono::minutes(10);

class StateSource {
 public:
  struct Options {
    std::vector<std::string> sites;  // names, in member order
    std::optional<double> bits_per_s;
    /// Any task.
    std::function<void(WorkerId to, const Note&)> send;
    Duration keeps_for = kMostKeeps;  // of a newcomer that is gone
  };
  explicit StateSource(Options options);

  /// A PrepareNote or TableNote of the donor, a GetNote or EnoughNote of the newcomer; others are
  /// none of its business.
  void receive(WorkerId from, const Note& note);
  /// `site` has joined, or is not taken in: if it was the newcomer, or the donor, nothing is kept.
  void forget(WorkerId site);
  /// `site` is gone: as `forget`, but what is there for a newcomer stays for a while.
  void lost(WorkerId site, TimePoint now);
  /// Whether a state is there for it.
  [[nodiscard]] bool serves(WorkerId newcomer) const;
  /// Whether somebody is there who is being taken in, be it that no more is given from here.
  [[nodiscard]] bool takes_in() const;
  /// At the donor: the newcomer has come back for the state that is there.
  void returned(WorkerId newcomer);
  /// From the worker, between two steps: what has been kept for long enough goes.
  void expire(TimePoint now);

  /// From the worker, between two steps: where a donor has asked for it, the state is laid down.
  /// That takes as much memory as the state has; without it the others give.
  void after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy);
  /// At the donor: all of `state` is to be had. RETURNS: its pieces.
  [[nodiscard]] PieceTable hold(WorkerId newcomer, std::vector<std::byte> state);

  /// The newcomer falls behind: without a rate, parts go freely from now on, rounds or not.
  void hurry(WorkerId newcomer);
  /// Parts that could not be sent.
  void forget_asked();
  /// The next part to send, if one may go now. `round_open`: here. Takes its time where the table
  /// has come after the state.
  [[nodiscard]] std::optional<std::pair<WorkerId, PieceNote>> next(TimePoint now, bool round_open);
  /// While parts wait: when to ask again at the latest; else nothing.
  [[nodiscard]] std::optional<TimePoint> due() const;

 private:
  void prepare(WorkerId from, const PrepareNote& note);
  void say_holds() const;
  void take_table(const TableNote& note);
  void get(const GetNote& note);
  /// Once table and state are there: what is alike is kept. Without the lock; not by a task that
  /// receives.
  void compare();
  /// Nobody is being taken in.
  void drop();
  /// The newcomer needs nothing more of here, or there is nothing.
  void give_no_more();

  const Options options_;
  mutable std::mutex mutex_;
  // Under mutex_:
  DonorThrottle pace_;
  std::uint64_t number_ = 0;  // counts newcomers
  std::optional<WorkerId> newcomer_;
  std::optional<WorkerId> donor_;        // of another's state
  std::optional<StepIndex> prepared_;    // what the donor has named
  std::optional<TimePoint> kept_until_;  // while the newcomer is gone
  std::optional<StepIndex> after_;       // the state is to be laid down; not before this step
  NoteStreamAssembler tables_;
  std::optional<PieceTable> table_;                   // the donor's
  std::optional<std::vector<std::byte>> state_;       // the own one; after `compare` what is alike
  PieceTable own_;                                    // of the state; until `compare`
  std::vector<std::optional<std::uint64_t>> places_;  // in it, by piece
  bool serves_ = false;
  bool over_ = false;  // nothing more is given to this newcomer
  bool hurries_ = false;
  std::deque<GetNote> asked_;
};

}  // namespace isthmus::app
