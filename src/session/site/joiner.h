// SPDX-License-Identifier: Apache-2.0
// The joiner's side of a join (protocol: session/site/state_donor.h).
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/runtime.h"
#include "isthmus/session.h"
#include "isthmus/state.h"
#include "session/run/partial_state_file.h"
#include "session/site/site_notes.h"
#include "transport/exchange/catch_up/joining_exchange.h"
#include "transport/exchange/catch_up/piece_fetch.h"
#include "transport/wire/note_stream.h"

namespace isthmus::app {

class Joiner {
 public:
  /// Borrows `real` and `runtime`. `sites`: names, in member order. `send`: any task. `saved`:
  /// keeps pieces for the joiner's next process until the state is whole; null: pieces are not
  /// kept. A failing disk causes one warning, and pieces are then not kept. `awaits_end`: the
  /// joiner trains only once the donor has ended the last replayed step, since that step may be
  /// rolled back until then.
  Joiner(Exchange& real, Runtime& runtime, WorkerId donor, std::vector<std::string> sites,
         std::function<void(WorkerId to, const Note&)> send,
         std::unique_ptr<PartialStateFile> saved = nullptr, bool awaits_end = false);
  /// Blocks until its task has ended.
  ~Joiner();
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  /// The note to the donor once links to these sites are open.
  [[nodiscard]] JoinNote join(std::vector<int> linked) const {
    return {.linked = std::move(linked), .table = has_.table, .saved = has_.bytes};
  }

  // From the links' task.
  /// Handles OfferNote, TableNote, ResultNote and ReachedNote of the donor, HoldsNote and PieceNote
  /// of any site; ignores all other notes.
  void receive(WorkerId from, const Note& note);
  /// A site other than the donor is lost.
  void lost(WorkerId site);
  /// This site is a member for rounds sent after this step.
  void admitted(std::int64_t after);
  void fail(WorkerId who, const std::string& why);

  /// Fetches the state; blocks until `deadline` at most. RETURNS: true once it is here, false at
  /// the deadline. Call again, a few times a second, since the call also detects silent sources.
  /// THROWS: PeerError when the state cannot be fetched.
  [[nodiscard]] bool fetch(TimePoint deadline);
  /// Progress of the fetch, for people.
  [[nodiscard]] std::string progress() const;
  /// After `fetch`: the donor's step of the state, and the state, once. THROWS: PeerError when the
  /// bytes are no state.
  [[nodiscard]] const OfferNote& offer() const { return *state_.offer; }
  [[nodiscard]] std::unique_ptr<StateReader> take_state();

  /// After `fetch`: the exchange for the worker.
  [[nodiscard]] JoiningExchange& exchange() { return *exchange_; }
  /// The worker is about to replay step t; blocks until its results are here. RETURNS: false when t
  /// is the first step to be trained. `wishes`: a wish to stop ends the replay; null: no wishes.
  /// THROWS: PeerError when the donor is lost; Error after a wish to stop.
  [[nodiscard]] bool may_replay(StepIndex t, Duration patience, const Wishes* wishes = nullptr);

 private:
  /// The offered state, fetched in pieces.
  struct FetchedState {
    std::optional<OfferNote> offer;
    std::optional<PieceFetch> fetch;  // once the table is here
    std::map<WorkerId, std::vector<bool>>
        early;  // pieces that sites announced before the table arrived
    TimePoint fetching_since;
    bool said_enough = false;
    bool reads_disk = false;      // no piece is requested meanwhile
    std::uint64_t from_disk = 0;  // bytes
  };

  void take_table(const TableNote& note);
  void take_holds(WorkerId from, const HoldsNote& note);
  void ask();
  void keep_pieces();
  void deliver(const ResultNote& note);
  void replayed(const SyncId& id);
  [[nodiscard]] const std::string& name(WorkerId site) const {
    return sites_[static_cast<std::size_t>(site.value())];
  }

  Exchange& real_;
  Runtime& runtime_;
  const WorkerId donor_;
  const std::vector<std::string> sites_;
  const std::function<void(WorkerId to, const Note&)> send_;
  const bool awaits_end_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  FetchedState state_;
  bool ends_ = false;
  std::optional<std::string> failure_;
  std::optional<StepIndex> reached_;
  std::map<SyncId, std::uint64_t> unplayed_;  // bytes of results that wait for the worker
  std::uint64_t taken_ = 0;                   // bytes of results already replayed
  // The links' task's alone:
  NoteStreamAssembler results_;
  NoteStreamAssembler tables_;
  // Made by the links' task with the offer; used by the worker after `fetch`.
  std::unique_ptr<JoiningExchange> exchange_;
  // The worker's alone:
  bool said_caught_up_ = false;
  // Its own task's, from the table on:
  const std::unique_ptr<PartialStateFile> saved_;
  const PartialStateFile::Summary has_;
  std::unique_ptr<Task> keeper_;
};

}  // namespace isthmus::app
