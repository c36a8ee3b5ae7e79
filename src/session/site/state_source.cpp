// SPDX-License-Identifier: Apache-2.0
#include "session/site/state_source.h"

#include <algorithm>
#include <new>

#include "core/base/fault_point.h"
#include "core/base/log.h"
#include "core/state/state_bytes.h"
#include "session/run/worker_state.h"

namespace isthmus::app {
namespace {

constexpr std::uint64_t kLargestTable = std::uint64_t{1} << 32;
constexpr std::uint64_t kLargestPart = std::uint64_t{512} << 10;
constexpr std::size_t kMostAsked = 1024;  // of an honest newcomer a quarter

PieceTable pieces_of(const std::vector<std::byte>& state) {
  return cut_pieces(state, state_borders(state));
}

}  // namespace

StateSource::StateSource(Options options)
    : options_(std::move(options)), pace_(options_.bits_per_s), tables_(kLargestTable) {}

void StateSource::drop() {
  give_no_more();
  newcomer_.reset();
  donor_.reset();
  over_ = false;
}

void StateSource::give_no_more() {
  over_ = true;
  after_.reset();
  prepared_.reset();
  kept_until_.reset();
  ++number_;
  table_.reset();
  state_.reset();
  own_.clear();
  places_.clear();
  asked_.clear();
  serves_ = false;
  hurries_ = false;
}

void StateSource::receive(WorkerId from, const Note& note) {
  const std::scoped_lock lock(mutex_);
  if (const auto* wanted = std::get_if<PrepareNote>(&note)) {
    prepare(from, *wanted);
  } else if (const auto* table = std::get_if<TableNote>(&note)) {
    if (donor_ == from && !over_) take_table(*table);
  } else if (newcomer_ != from) {
    return;  // of a site that counted as gone
  } else if (const auto* part = std::get_if<GetNote>(&note)) {
    get(*part);
  } else if (std::holds_alternative<EnoughNote>(note)) {
    give_no_more();
  }
}

void StateSource::prepare(WorkerId from, const PrepareNote& note) {
  const auto site = [&](int rank) {
    return rank >= 0 && std::cmp_less(rank, options_.sites.size());
  };
  if (!site(note.newcomer) || !site(from.value())) return;
  if (serves_ && newcomer_ == WorkerId(note.newcomer) && donor_ == from && prepared_ == note.step) {
    kept_until_.reset();  // it has come back for the same state
    asked_.clear();
    say_holds();
    return;
  }
  drop();
  newcomer_ = WorkerId(note.newcomer);
  donor_ = from;
  after_ = note.step;
  prepared_ = note.step;
  tables_ = NoteStreamAssembler(kLargestTable);
}

void StateSource::take_table(const TableNote& note) {
  if (table_) return;  // said twice
  const auto stream = tables_.take(note.piece);
  const auto ends = [&](const std::string& why) {
    log_warning("site {} is given no state from here: site {} sent {}",
                options_.sites[static_cast<std::size_t>(newcomer_->value())],
                options_.sites[static_cast<std::size_t>(donor_->value())], why);
    give_no_more();
  };
  if (!stream) return ends(stream.error());
  if (!*stream) return;
  auto table = read_table((*stream)->bytes);
  if (!table) return ends(table.error());
  table_ = *std::move(table);
}

void StateSource::after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy) {
  {
    const std::scoped_lock lock(mutex_);
    if (!after_ || t < *after_) return;
  }
  std::vector<std::byte> state;
  PieceTable own;
  try {
    state = write_state(worker_snapshot(inner, strategy, true));
    own = pieces_of(state);
  } catch (const std::bad_alloc&) {
    log_warning(
        "no memory for a copy of this site's state: a joining site fetches it from other sites");
    const std::scoped_lock lock(mutex_);
    if (after_ && t >= *after_) give_no_more();
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    if (!after_ || t < *after_) return;  // of another newcomer meanwhile
    after_.reset();
    state_ = std::move(state);
    own_ = std::move(own);
  }
  compare();
}

// Pieces that are alike are moved to the front, in the order in which they lie, so nothing is kept
// twice on the way. Without the lock: a large state takes its time, and notes come meanwhile.
void StateSource::compare() {
  std::uint64_t number = 0;
  std::vector<std::byte> state;
  PieceTable table;
  PieceTable own;
  {
    const std::scoped_lock lock(mutex_);
    if (!table_ || !state_ || serves_) return;
    number = number_;
    table = *table_;
    own = std::exchange(own_, {});
    state = *std::exchange(state_, std::nullopt);
  }
  std::vector<std::optional<std::uint64_t>> places = match_pieces(table, own);
  std::vector<std::size_t> alike;
  for (std::size_t k = 0; k < places.size(); ++k) {
    if (places[k]) alike.push_back(k);
  }
  std::ranges::stable_sort(alike, {}, [&](std::size_t k) { return *places[k]; });
  std::uint64_t end = 0;
  std::optional<std::uint64_t> last_from;
  for (const std::size_t k : alike) {
    const std::uint64_t from = *places[k];
    const std::uint32_t bytes = table[k].bytes;
    if (last_from == from) {  // several pieces have the same bytes
      places[k] = end - bytes;
      continue;
    }
    last_from = from;
    const auto begin = state.begin() + static_cast<std::ptrdiff_t>(from);
    std::move(begin, begin + static_cast<std::ptrdiff_t>(bytes),
              state.begin() + static_cast<std::ptrdiff_t>(end));
    places[k] = end;
    end += bytes;
  }
  state.resize(end);
  const std::scoped_lock lock(mutex_);
  if (number != number_) return;  // the request is no longer wanted
  state_ = std::move(state);
  places_ = std::move(places);
  serves_ = true;
  log_info("site {} joins: {} of {} pieces of the state it is given can be had here, {} bytes",
           options_.sites[static_cast<std::size_t>(newcomer_->value())], alike.size(),
           places_.size(), end);
  say_holds();
}

void StateSource::say_holds() const {
  HoldsNote holds{.pieces = std::vector<bool>(places_.size())};
  for (std::size_t k = 0; k < places_.size(); ++k) holds.pieces[k] = places_[k].has_value();
  options_.send(*newcomer_, holds);
}

PieceTable StateSource::hold(WorkerId newcomer, std::vector<std::byte> state) {
  PieceTable table = pieces_of(state);
  const std::scoped_lock lock(mutex_);
  drop();
  newcomer_ = newcomer;
  state_ = std::move(state);
  for (const StatePiece& piece : table) places_.emplace_back(piece.offset);
  table_ = table;
  serves_ = true;
  return table;
}

void StateSource::forget(WorkerId site) {
  const std::scoped_lock lock(mutex_);
  if (newcomer_ == site || donor_ == site) drop();
}

void StateSource::lost(WorkerId site, TimePoint now) {
  const std::scoped_lock lock(mutex_);
  if (newcomer_ == site && serves_) {
    kept_until_ = now + options_.keeps_for;
    asked_.clear();
    hurries_ = false;
  } else if (newcomer_ == site || donor_ == site) {
    drop();
  }
}

bool StateSource::serves(WorkerId newcomer) const {
  const std::scoped_lock lock(mutex_);
  return serves_ && newcomer_ == newcomer;
}

bool StateSource::takes_in() const {
  const std::scoped_lock lock(mutex_);
  return newcomer_ && !kept_until_;
}

void StateSource::returned(WorkerId newcomer) {
  const std::scoped_lock lock(mutex_);
  if (newcomer_ == newcomer) kept_until_.reset();
}

void StateSource::expire(TimePoint now) {
  const std::scoped_lock lock(mutex_);
  if (kept_until_ && now >= *kept_until_) drop();
}

void StateSource::get(const GetNote& note) {
  if (!serves_ || note.bytes > kLargestPart || asked_.size() >= kMostAsked) return;
  const auto piece = find_piece(*table_, note.offset, note.bytes);
  if (piece && *piece < places_.size() && places_[*piece]) asked_.push_back(note);
}

void StateSource::hurry(WorkerId newcomer) {
  const std::scoped_lock lock(mutex_);
  if (newcomer_ == newcomer) hurries_ = true;
}

void StateSource::forget_asked() {
  const std::scoped_lock lock(mutex_);
  asked_.clear();
}

std::optional<std::pair<WorkerId, PieceNote>> StateSource::next(TimePoint now, bool round_open) {
  compare();
  const std::scoped_lock lock(mutex_);
  if (asked_.empty() || !pace_.open(now, round_open && !hurries_)) return std::nullopt;
  const GetNote note = asked_.front();
  asked_.pop_front();
  const std::size_t piece = *find_piece(*table_, note.offset, note.bytes);
  const std::uint64_t at = *places_[piece] + (note.offset - (*table_)[piece].offset);
  const auto begin = state_->begin() + static_cast<std::ptrdiff_t>(at);
  pace_.spend(now, note.bytes);
  reach(FaultPoint::kServes);
  return std::pair(*newcomer_,
                   PieceNote{.offset = note.offset,
                             .bytes = {begin, begin + static_cast<std::ptrdiff_t>(note.bytes)}});
}

std::optional<TimePoint> StateSource::due() const {
  const std::scoped_lock lock(mutex_);
  if (asked_.empty()) return std::nullopt;
  return pace_.opens();
}

}  // namespace isthmus::app
