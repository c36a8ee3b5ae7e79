// SPDX-License-Identifier: Apache-2.0
// Notes between the processes of one run, independent of the rounds: the steps of each site's
// worker, so that every site writes the whole run's lines; the steps at which to stop or to save a
// checkpoint; the checkpoints of a site. CBOR arrays [kind, fields...]; a NOTE frame carries one
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

/// Raised when a note changes its meaning: members with different versions refuse each other.
inline constexpr int kNotesVersion = 14;

/// The first note: the sender's identity, and where it could start.
struct HelloNote {
  std::string run_id;    // a fresh one; the one of site 0 holds for a new run
  bool resumes = false;  // continues at the common checkpoint instead of starting anew
  std::vector<HeldCheckpoint> held;
  std::vector<std::pair<std::string, std::string>> common;  // must be equal at all sites
  bool unreadable = false;                                  // it has unreadable ones too
};
/// Steps that the sender has taken, in order.
struct PostsNote {
  std::vector<StepPost> posts;  // `now` counts from the start of the sender's training
};
/// The sender's share of an evaluation.
struct EvalNote {
  StepIndex step;
  std::vector<EvalPart> parts;
  TimePoint now;
};
/// The digest of the sender's outer state after a step; or, if the digests differ, the digest of
/// its replay (session/run/divergence_rule.h).
struct OuterNote {
  StepIndex step;
  std::string digest;      // of a replay: empty if there is none
  std::string about = {};  // the sender's program and processor, for people
  bool replayed = false;
  std::string why = {};  // why there is no replay; at a start: its tensors
                         // (session/run/run_start.h)
};
/// The rebroadcast after a loss in this epoch: digests that the sender got from lost sites.
struct GoneNote {
  struct Word {
    std::uint32_t epoch = 0;  // of the site's loss
    int site = -1;
    OuterNote note;
  };
  std::uint32_t epoch = 0;
  std::vector<Word> words;
};
/// Outer states differ, and the sender has found that no site can tell which is right.
struct DifferNote {
  std::string why;
};

/// The purpose of an agreed step. kJoin: a site joins, or is given a state to join with. kLeave:
/// the site that wished it leaves, and the others continue. kWait: a checkpoint, after which all
/// pause while too few sites are present.
enum class Purpose : int {
  kInterrupt = 0,
  kRequeue = 1,
  kCheckpoint = 2,
  kJoin = 3,
  kLeave = 4,
  kWait = 5
};

// The coordinator is the hub, or site 0 without a hub.

/// To the coordinator: a wish of the sender.
struct WishNote {
  Purpose purpose = Purpose::kCheckpoint;
  int joiner = -1;  // kJoin, to a hub: the joiner, and the sites that it has found
  std::vector<int> linked = {};
};
/// From the coordinator: asks for the site's progress.
struct AskNote {
  std::int64_t number = 0;
};
/// To the coordinator: the sender does not begin this step before the agreement.
struct HoldNote {
  std::int64_t number = 0;
  StepIndex step;
};
/// From the coordinator: the agreed step, at every site.
struct AgreedNote {
  std::int64_t number = 0;
  Purpose purpose = Purpose::kCheckpoint;
  StepIndex step;
};

/// From site 0 to a site that wished to leave: it cannot.
struct RefusedNote {
  std::string why;
};

// Notes of a join into a running run (session/site/state_donor.h, session/site/joiner.h). One end
// is the joiner, the other the donor: site 0, or with a hub the first site present. Parts of the
// state come from any site (session/site/state_source.h).

/// To a joiner that said Hello to the coordinator: the run is running without it.
struct RunningNote {
  std::string run_id;
  std::vector<int> live;  // sites
  int donor = 0;
  std::string session = {};  // of a hub
};
/// To a joiner: it cannot join, or cannot continue to.
struct TurnedAwayNote {
  std::string why;
  bool configuration = false;  // the cause; it has to change
  bool again = false;          // it may try again at once
};
/// To a joiner, from each site of the run that received its Hello: notes reach the joiner from now
/// on.
struct SeenNote {};
/// From a joiner: its links to these sites are open, and the sites have answered.
struct JoinNote {
  std::vector<int> linked;
  /// Of an unfinished join of its previous process: the digest of that state's table, and how much
  /// of the state its disk holds (session/run/partial_state_file.h).
  Digest128 table = {};
  std::uint64_t saved = 0;  // bytes
};
/// From the donor, to every other site of the run: save your state after this step, or after your
/// current step if that is later.
struct PrepareNote {
  int newcomer = -1;
  StepIndex step;
};
/// To a joiner: a worker's state after this step is available.
struct OfferNote {
  StepIndex step;
  std::uint64_t bytes = 0;
  double clock_s = 0;  // of the run, so far
};
/// From the donor, after OfferNote, also to all sites that got PrepareNote: a piece of the stream
/// (transport/wire/note_stream.h) with the state's table
/// (transport/exchange/catch_up/piece_table.h).
struct TableNote {
  std::vector<std::byte> piece;
};
/// To a joiner, from such a site: the pieces that it can serve.
struct HoldsNote {
  std::vector<bool> pieces;  // by place in the table
};
/// From a joiner, to a site that has it: requests that part of the state, within one piece.
struct GetNote {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
struct PieceNote {
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
};
/// From a joiner, to all sites that served parts of the state: it is whole.
struct EnoughNote {};
/// To a joiner: a piece of a round's result (transport/wire/note_stream.h).
struct ResultNote {
  std::vector<std::byte> piece;
};
/// To a joiner: the donor has ended this step and has sent its results.
struct ReachedNote {
  StepIndex step;
};
/// From a joiner: the total bytes of results that it has replayed.
struct TakenNote {
  std::uint64_t bytes = 0;
};
/// From a joiner: it has replayed all results so far.
struct CaughtUpNote {};

/// From the hub, or from site 0 without a hub, once all sites have said Hello: the run begins.
struct StartNote {
  std::string run_id;
  std::string session;           // names this start; from site 0: its Hello's run_id
  std::vector<int> absent = {};  // sites not let in yet: the run does not wait for them
  std::optional<std::int64_t> resume_after = std::nullopt;  // from site 0: continue after it
  std::optional<std::int64_t> given_up = std::nullopt;      // from site 0: as in SiteStart
};

// Between a site and the hub (session/hub/hub_run.h).

/// To a hub's new process: the sender is in this run, and knows these decisions.
struct StandingNote {
  std::string run_id;
  std::string session;
  Decided decided = {};
};
/// From the hub's new process: it continues that run. Open questions of the previous process are
/// void; agreements were repeated before this note.
struct ServeNote {};

using Note = std::variant<HelloNote, PostsNote, EvalNote, OuterNote, WishNote, AskNote, HoldNote,
                          AgreedNote, RunningNote, TurnedAwayNote, JoinNote, OfferNote, GetNote,
                          PieceNote, ResultNote, ReachedNote, CaughtUpNote, SeenNote, StartNote,
                          StandingNote, ServeNote, RefusedNote, TakenNote, PrepareNote, TableNote,
                          HoldsNote, EnoughNote, GoneNote, DifferNote>;

[[nodiscard]] std::vector<std::byte> write_note(const Note& note);
/// RETURNS: the reason if the bytes are no note.
[[nodiscard]] Expected<Note, std::string> read_note(std::span<const std::byte> bytes);

}  // namespace isthmus::app
