// SPDX-License-Identifier: Apache-2.0
#include "session/site/joiner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "core/base/deadline.h"
#include "core/base/fault_point.h"
#include "core/base/log.h"
#include "core/state/state_bytes.h"
#include "isthmus/errors.h"
#include "transport/exchange/round_result.h"

namespace isthmus::app {
namespace {

constexpr Duration kLookForSignals = std::chrono::milliseconds(200);
constexpr std::uint64_t kLargestState = std::uint64_t{1} << 44;
constexpr std::uint64_t kLargestTable = std::uint64_t{1} << 32;
constexpr std::uint64_t kLargestResult = std::uint64_t{1} << 40;

/// The pieces on the disk are not needed any more.
struct Ended {};

}  // namespace

Joiner::Joiner(Exchange& real, Runtime& runtime, WorkerId donor, std::vector<std::string> sites,
               std::function<void(WorkerId to, const Note&)> send,
               std::unique_ptr<PartialStateFile> saved, bool awaits_end)
    : real_(real),
      runtime_(runtime),
      donor_(donor),
      sites_(std::move(sites)),
      send_(std::move(send)),
      awaits_end_(awaits_end),
      queue_(runtime.make_wait_queue()),
      results_(kLargestResult),
      tables_(kLargestTable),
      saved_(std::move(saved)),
      has_(saved_ ? saved_->summary() : PartialStateFile::Summary()) {}

Joiner::~Joiner() {
  queue_->update([&] { ends_ = true; });
  keeper_.reset();
}

void Joiner::receive(WorkerId from, const Note& note) {
  if (const auto* holds = std::get_if<HoldsNote>(&note)) {
    take_holds(from, *holds);
  } else if (const auto* piece = std::get_if<PieceNote>(&note)) {
    reach(FaultPoint::kFetches);
    queue_->update([&] {
      if (state_.fetch)
        state_.fetch->take(from, piece->offset, piece->bytes, runtime_.clock().now());
    });
    ask();
  } else if (from != donor_) {
    return;
  } else if (const auto* offer = std::get_if<OfferNote>(&note)) {
    if (exchange_) {
      return;  // said twice
    }
    if (offer->bytes > kLargestState) {
      fail(from, fmt::format("site {} offers a state of {} bytes", name(from), offer->bytes));
      return;
    }
    reach(FaultPoint::kJoins);
    exchange_ = std::make_unique<JoiningExchange>(real_, runtime_, offer->step,
                                                  [this](const SyncId& id) { replayed(id); });
    queue_->update([&] { state_.offer = *offer; });
  } else if (const auto* table = std::get_if<TableNote>(&note)) {
    take_table(*table);
  } else if (const auto* result = std::get_if<ResultNote>(&note)) {
    deliver(*result);
  } else if (const auto* reached = std::get_if<ReachedNote>(&note)) {
    if (exchange_) exchange_->reached(reached->step);
    queue_->update([&] { reached_ = reached->step; });
  }
}

void Joiner::take_table(const TableNote& note) {
  bool enough = false;
  queue_->update([&] { enough = state_.said_enough; });
  if (!exchange_ || enough) return;  // of another one's join
  auto stream = tables_.take(note.piece);
  if (!stream) {
    fail(donor_, fmt::format("site {} sent {}", name(donor_), stream.error()));
    return;
  }
  if (!*stream) return;
  auto table = read_table((*stream)->bytes);
  if (!table || table_bytes(*table) != state_.offer->bytes) {
    fail(donor_,
         fmt::format("site {} sent {}", name(donor_),
                     table ? "a table of another state than it has offered" : table.error()));
    return;
  }
  bool fresh = false;
  queue_->update([&] {
    if (state_.fetch) return;  // said twice
    fresh = true;
    state_.reads_disk = saved_ != nullptr;
    const std::size_t pieces = table->size();
    state_.fetch.emplace(*std::move(table), donor_);
    state_.fetching_since = runtime_.clock().now();
    for (auto& [site, holds] : std::exchange(state_.early, {})) {
      if (holds.size() == pieces) state_.fetch->add(site, std::move(holds));
    }
  });
  if (fresh && saved_) keeper_ = runtime_.spawn("pieces on disk", [this] { keep_pieces(); });
  ask();
}

// A large state takes time to read and to write, and results arrive meanwhile, so a separate task
// does it. Pieces for which the disk is too slow are not saved; nothing waits for them.
void Joiner::keep_pieces() {
  try {
    const PieceTable* table = nullptr;  // stays as it is
    queue_->update([&] { table = &state_.fetch->table(); });
    saved_->open(*table, [&](std::size_t piece, std::span<const std::byte> bytes) {
      bool right = false;
      bool ends = false;
      queue_->update([&] {
        ends = ends_;
        right = !ends && state_.fetch->put(piece, bytes);
        if (right) state_.from_disk += bytes.size();
      });
      if (ends) throw Ended();
      return right;
    });
    queue_->update([&] { state_.reads_disk = false; });
    for (std::size_t written = 0;; ++written) {
      std::optional<std::size_t> next;
      std::vector<std::byte> bytes;
      bool whole = false;
      (void)queue_->wait(
          [&] {
            whole = state_.fetch->complete();
            if (whole || ends_) return true;
            if (written == state_.fetch->given().size()) return false;
            next = state_.fetch->given()[written];
            const std::span<const std::byte> piece = state_.fetch->piece(*next);
            bytes.assign(piece.begin(), piece.end());
            return true;
          },
          kNever);
      if (whole) saved_->remove();
      if (!next) return;
      saved_->add((*table)[*next], bytes);
    }
  } catch (const Ended&) {                 // the pieces on the disk are for the next process
  } catch (const std::exception& error) {  // of the disk, or for want of memory
    log_warning(
        "if this site dies before it has the whole state, it will fetch all of it again: {}",
        error.what());
    queue_->update([&] { state_.reads_disk = false; });
    try {
      saved_->remove();                // a checkpoint may need the room
    } catch (const std::exception&) {  // one warning is enough
    }
  }
}

void Joiner::take_holds(WorkerId from, const HoldsNote& note) {
  if (from.value() < 0 || std::cmp_greater_equal(from.value(), sites_.size())) return;
  log_info("site {} gives of the state too: {} of {} pieces", name(from),
           std::ranges::count(note.pieces, true), note.pieces.size());
  queue_->update([&] {
    if (!state_.fetch) {
      state_.early[from] = note.pieces;
    } else if (note.pieces.size() == state_.fetch->pieces()) {
      state_.fetch->add(from, note.pieces);
    }
  });
  ask();
}

void Joiner::lost(WorkerId site) {
  queue_->update([&] {
    state_.early.erase(site);
    if (state_.fetch) state_.fetch->lose(site);
  });
  ask();
}

// Called after everything that may have changed which pieces to request, or from which site.
void Joiner::ask() {
  std::vector<PieceFetch::Ask> wanted;
  std::vector<PieceFetch::Source> done;
  std::uint64_t bytes = 0;
  std::uint64_t from_disk = 0;
  double seconds = 0;
  queue_->update([&] {
    if (!state_.fetch || failure_ || state_.reads_disk) return;
    wanted = state_.fetch->ask(runtime_.clock().now());
    if (state_.fetch->failure()) failure_ = state_.fetch->failure();
    if (state_.fetch->complete() && !std::exchange(state_.said_enough, true)) {
      done = state_.fetch->sources();
      bytes = state_.fetch->bytes();
      from_disk = state_.from_disk;
      seconds = in_seconds(runtime_.clock().now() - state_.fetching_since);
    }
  });
  for (const PieceFetch::Ask& each : wanted) {
    send_(each.from, GetNote{.offset = each.offset, .bytes = each.bytes});
  }
  if (done.empty()) return;
  std::string from;
  for (const PieceFetch::Source& source : done) {
    send_(source.rank, EnoughNote{});
    from += fmt::format("{}{} {} bytes{}", from.empty() ? "" : ", ", name(source.rank),
                        source.given, source.gone ? " (then lost)" : "");
  }
  if (from_disk > 0) from += fmt::format(", this site's disk {} bytes", from_disk);
  log_info("the state after step {} is here: {} bytes in {:.2f} s; {}", state_.offer->step.value(),
           bytes, seconds, from);
}

void Joiner::deliver(const ResultNote& note) {
  if (!exchange_) {
    return;  // before the offer: not of this join
  }
  auto stream = results_.take(note.piece);
  if (!stream) {
    exchange_->fail(donor_, stream.error());
    return;
  }
  if (!*stream) {
    return;
  }
  auto result = read_result((*stream)->bytes, real_.members());
  if (!result) {
    exchange_->fail(donor_, result.error());
    return;
  }
  queue_->update([&] { unplayed_[result->id] = (*stream)->bytes.size(); });
  exchange_->deliver(result->id, std::move(result->reduced), std::move(result->encoded));
}

// Only now its memory is free: a result that has come, but waits, counts as under way.
void Joiner::replayed(const SyncId& id) {
  std::uint64_t taken = 0;
  queue_->update([&] {
    const auto found = unplayed_.find(id);
    if (found == unplayed_.end()) return;
    taken_ += found->second;
    unplayed_.erase(found);
    taken = taken_;
  });
  if (taken > 0) send_(donor_, TakenNote{taken});
}

void Joiner::admitted(std::int64_t after) {
  if (exchange_) exchange_->become_member(StepIndex(after));
}

void Joiner::fail(WorkerId who, const std::string& why) {
  if (exchange_) exchange_->fail(who, why);
  queue_->update([&] {
    if (!failure_) failure_ = why;
  });
}

bool Joiner::fetch(TimePoint deadline) {
  ask();
  std::optional<std::string> failure;
  const bool settled = queue_->wait(
      [&] {
        failure = failure_;
        return failure_ || (state_.fetch && state_.fetch->complete() && !state_.reads_disk);
      },
      deadline);
  if (failure) {
    throw PeerError(fmt::format("the state of the run could not be fetched: {}", *failure));
  }
  if (settled)
    ask();  // the disk may have held the rest: all sites are told that the state is complete
  return settled;
}

std::string Joiner::progress() const {
  std::string text = fmt::format("site {} has not offered its state yet", name(donor_));
  queue_->update([&] {
    if (!state_.fetch) return;
    std::string from;
    for (const PieceFetch::Source& source : state_.fetch->sources()) {
      from += fmt::format("{}{} {}", from.empty() ? "" : ", ", name(source.rank), source.given);
    }
    text = fmt::format("{} of {} bytes of the state after step {} are here ({})",
                       state_.fetch->bytes_here(), state_.fetch->bytes(),
                       state_.offer->step.value(), from);
  });
  return text;
}

std::unique_ptr<StateReader> Joiner::take_state() {
  std::vector<std::byte> bytes;
  queue_->update([&] { bytes = state_.fetch->take_state(); });
  auto reader = read_state(std::move(bytes));
  if (!reader) {
    throw PeerError(
        fmt::format("site {} sent a state that cannot be read: {}", name(donor_), reader.error()));
  }
  return *std::move(reader);
}

// The offer may be an old one, of before it came back: only the donor's word tells how far the run
// has come.
bool Joiner::may_replay(StepIndex t, Duration patience, const Wishes* wishes) {
  const TimePoint end = deadline_after(runtime_.clock().now(), patience);
  while (true) {
    bool all_replayed = false;
    queue_->update([&] { all_replayed = reached_ && t > std::max(state_.offer->step, *reached_); });
    if (all_replayed && !std::exchange(said_caught_up_, true)) send_(donor_, CaughtUpNote{});
    const Duration look = std::min(patience, kLookForSignals);
    const std::optional<StepIndex> known = exchange_->member_after();
    const bool through = awaits_end_ && known && t > *known;
    const auto ready =
        through ? exchange_->await_end(*known, look) : exchange_->await_step(t, look);
    if (ready) {
      const std::optional<StepIndex> last = exchange_->member_after();
      if (!last || t <= *last) return true;
      if (through || !awaits_end_) return false;
      continue;
    }
    if (wishes != nullptr && wishes->stop() != StopWish::kNone) {  // the others go on
      throw Error(ExitCode::kInterrupted, "stopped before this site took part in the run");
    }
    if (ready.error().kind != ExchangeError::Kind::kDeadlineExceeded ||
        runtime_.clock().now() >= end) {
      throw PeerError(fmt::format("joining: {}", ready.error().what));
    }
  }
}

}  // namespace isthmus::app
