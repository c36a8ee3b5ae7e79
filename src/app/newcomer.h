// SPDX-License-Identifier: Apache-2.0
// A site that comes to a run that goes on, as it sees the join (app/join_host.h has the whole).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/site_notes.h"
#include "isthmus/runtime.h"
#include "isthmus/state.h"
#include "transport/joining_exchange.h"
#include "transport/note_stream.h"

namespace isthmus::app {

class Newcomer {
 public:
  /// Borrows `real` and `runtime`. `send`: to the donor, whose name is `donor`; any task.
  Newcomer(Exchange& real, Runtime& runtime, std::string donor,
           std::function<void(const Note&)> send);

  // From the links' task.
  /// An OfferNote, PieceNote, ResultNote or ReachedNote of the donor; others are none of its
  /// business.
  void receive(const Note& note);
  /// A member for rounds sent after this step.
  void admitted(std::int64_t after);
  void fail(Rank who, const std::string& why);

  /// Fetches the state. RETURNS: true once it is here, false at the deadline: call again.
  /// THROWS: PeerError when it cannot be had.
  [[nodiscard]] bool fetch(TimePoint deadline);
  /// How far that is, for people.
  [[nodiscard]] std::string progress() const;
  /// After `fetch`: the step after which the state was taken, and the state, once.
  [[nodiscard]] const OfferNote& offer() const { return *offer_; }
  [[nodiscard]] std::unique_ptr<StateReader> take_state();

  /// After `fetch`. The worker's exchange.
  [[nodiscard]] JoiningExchange& exchange() { return *exchange_; }
  /// The worker is about to replay step t; blocks until it can. RETURNS: false when t is the first
  /// step to be trained on. THROWS: PeerError when the donor is gone.
  [[nodiscard]] bool may_replay(StepIndex t, Duration patience);

 private:
  void ask();
  void deliver(const ResultNote& note);

  Exchange& real_;
  Runtime& runtime_;
  const std::string donor_;
  const std::function<void(const Note&)> send_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  std::optional<OfferNote> offer_;
  std::vector<std::byte> state_;
  std::uint64_t asked_ = 0;  // bytes of the state
  std::optional<std::string> failure_;
  std::optional<StepIndex> reached_;
  // The links' task's alone:
  NoteStreamAssembler results_;
  std::uint64_t taken_ = 0;  // bytes of results
  // Made by the links' task with the offer; used by the worker after `fetch`.
  std::unique_ptr<JoiningExchange> exchange_;
  // The worker's alone:
  bool said_caught_up_ = false;
};

}  // namespace isthmus::app
