// SPDX-License-Identifier: Apache-2.0
// What the processes of one run tell each other beside the rounds: what each site's worker has
// done, so that every site writes the whole run's lines; at which step to stop or to lay down a
// checkpoint; which checkpoints a site has. CBOR arrays [kind, fields...]; a NOTE frame carries one
// (transport/wire/WIRE_FORMAT.md). Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/expected.h"
#include "record/run_events.h"
#include "session/run/held_checkpoint.h"
#include "transport/exchange/hub_record.h"

namespace isthmus::app {

/// Bumped when a note changes its meaning: members of unlike versions refuse each other.
inline constexpr int kNotesVersion = 14;

/// First of all: who speaks, and where it could start.
struct HelloNote {
  std::string run_id;    // a fresh one; that of site 0 holds for a new run
  bool resumes = false;  // goes on where all can, instead of starting anew
  std::vector<HeldCheckpoint> held;
  std::vector<std::pair<std::string, std::string>> common;  // (what, value) alike at all sites
  bool unreadable = false;                                  // it has checkpoints beside those held
};
/// Steps the sender has taken, in order.
struct PostsNote {
  std::vector<StepPost> posts;  // `now` counts from the start of the sender's training
};
/// The sender's share of an evaluation.
struct EvalNote {
  StepIndex step;
  std::vector<EvalPart> parts;
  TimePoint now;
};
/// The digest of the outer state that the sender holds after a step; or, where that is not the same
/// everywhere, of what its replay has come to (session/run/outer_verdict.h).
struct OuterNote {
  StepIndex step;
  std::string digest;      // of a replay: empty where there is none
  std::string about = {};  // the sender's program and processor, for people
  bool replayed = false;
  std::string why = {};  // there is no replay; of a start: its tensors (session/run/run_start.h)
};
/// What the sender has heard of outer states from sites that are gone, when another has gone in
/// this epoch.
struct GoneNote {
  struct Word {
    std::uint32_t epoch = 0;  // in which the site has gone
    int site = -1;
    OuterNote note;
  };
  std::uint32_t epoch = 0;
  std::vector<Word> words;
};
/// Outer states differ, and the sender has seen that nobody can say whose is right.
struct DifferNote {
  std::string why;
};

/// What sites agree on a step for. kJoin: another one joins, or is given a state to join with.
/// kLeave: who wished it goes, and the others go on. kWait: a checkpoint, after which nobody begins
/// a step while too few are there.
enum class Purpose : int {
  kInterrupt = 0,
  kRequeue = 1,
  kCheckpoint = 2,
  kJoin = 3,
  kLeave = 4,
  kWait = 5
};

// The coordinator is the hub, or site 0 where there is none.

/// To the coordinator: the sender has been asked for it.
struct WishNote {
  Purpose purpose = Purpose::kCheckpoint;
  int joiner = -1;  // of kJoin, to a hub: the newcomer, and the sites it has found
  std::vector<int> linked = {};
};
/// From the coordinator: how far have you come?
struct AskNote {
  std::int64_t number = 0;
};
/// To the coordinator: the sender does not begin this step before it has been told.
struct HoldNote {
  std::int64_t number = 0;
  StepIndex step;
};
/// From the coordinator: it happens after this step, at every site.
struct AgreedNote {
  std::int64_t number = 0;
  Purpose purpose = Purpose::kCheckpoint;
  StepIndex step;
};

/// From site 0, to one that wished to leave: it cannot.
struct RefusedNote {
  std::string why;
};

// A site that comes to a run that goes on (session/site/join_host.h, session/site/newcomer.h);
// `newcomer` is who sends or gets them, the other end is the donor: site 0, or with a hub the first
// that is there. Parts of the state come from any site (session/site/state_source.h).

/// To a newcomer, which has said Hello to the coordinator: the run goes on without you.
struct RunningNote {
  std::string run_id;
  std::vector<int> live;  // sites
  int donor = 0;
  std::string session = {};  // of a hub
};
/// To a newcomer: it cannot be one, or no more.
struct TurnedAwayNote {
  std::string why;
  bool configuration = false;  // which has to change
  bool again = false;          // it may try again at once
};
/// To a newcomer, from any site of the run that it has said Hello to: what is sent now reaches it.
struct SeenNote {};
/// From a newcomer: its links to these sites stand, and they have answered.
struct JoinNote {
  std::vector<int> linked;
  /// Of a join that its last process did not end: the digest of that state's table, and how much of
  /// the state is on its disk (session/run/saved_pieces.h).
  Digest128 table = {};
  std::uint64_t saved = 0;  // bytes
};
/// From the donor, to every other site of the run: lay down your state after this step, or after
/// the one you are in if that is later.
struct PrepareNote {
  int newcomer = -1;
  StepIndex step;
};
/// To a newcomer: a worker's state after this step is to be had.
struct OfferNote {
  StepIndex step;
  std::uint64_t bytes = 0;
  double clock_s = 0;  // of the run, so far
};
/// From the donor, behind OfferNote and to all who were told to prepare: a piece of the stream
/// (transport/wire/note_stream.h) that is the state's table
/// (transport/exchange/catch_up/piece_table.h).
struct TableNote {
  std::vector<std::byte> piece;
};
/// To a newcomer, from such a site: it has these pieces.
struct HoldsNote {
  std::vector<bool> pieces;  // by place in the table
};
/// From a newcomer, to who has it: that part of the state, within one piece.
struct GetNote {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
struct PieceNote {
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
};
/// From a newcomer, to all who have given of the state: it is whole.
struct EnoughNote {};
/// To a newcomer: a piece of a round's result (transport/wire/note_stream.h).
struct ResultNote {
  std::vector<std::byte> piece;
};
/// To a newcomer: site 0 has ended this step, and its results have been sent.
struct ReachedNote {
  StepIndex step;
};
/// From a newcomer: so many bytes of results have been replayed, in all.
struct TakenNote {
  std::uint64_t bytes = 0;
};
/// From a newcomer: it has replayed all there is.
struct CaughtUpNote {};

/// From the hub, or site 0 where there is none, once all sites have said Hello: the run begins.
struct StartNote {
  std::string run_id;
  std::string session;           // names this start of the run; of site 0: that Hello's run_id
  std::vector<int> absent = {};  // sites that have not been let in yet: nobody waits for them
  std::optional<std::int64_t> resume_after = std::nullopt;  // of site 0: goes on after this step
  std::optional<std::int64_t> given_up = std::nullopt;      // of site 0: SiteStart's
};

// Between a site and the hub (session/hub/hub_run.h).

/// To a hub's new process: the sender is in this run, and knows so much of what was decided.
struct StandingNote {
  std::string run_id;
  std::string session;
  Decided decided = {};
};
/// From it: it goes on with that run. Questions of the process before are void, what has been
/// agreed was told before.
struct ServeNote {};

using Note = std::variant<HelloNote, PostsNote, EvalNote, OuterNote, WishNote, AskNote, HoldNote,
                          AgreedNote, RunningNote, TurnedAwayNote, JoinNote, OfferNote, GetNote,
                          PieceNote, ResultNote, ReachedNote, CaughtUpNote, SeenNote, StartNote,
                          StandingNote, ServeNote, RefusedNote, TakenNote, PrepareNote, TableNote,
                          HoldsNote, EnoughNote, GoneNote, DifferNote>;

[[nodiscard]] std::vector<std::byte> write_note(const Note& note);
/// RETURNS: why the bytes are no note.
[[nodiscard]] Expected<Note, std::string> read_note(std::span<const std::byte> bytes);

}  // namespace isthmus::app
