// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/catch_up/piece_fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace isthmus {
namespace {

constexpr double kForgets = 0.99;  // the part of an old best rate that remains after each part
constexpr double kWorthTwice =
    1.5;  // a source this much slower has its piece fetched from another source too

}  // namespace

PieceFetch::PieceFetch(PieceTable table, WorkerId donor, Options options)
    : table_(std::move(table)),
      donor_(donor),
      options_(options),
      here_(table_.size(), false),
      holders_(table_.size(), 0),
      state_(table_bytes(table_)),
      bytes_(state_.size()) {
  add(donor, std::vector<bool>(table_.size(), true));
}

void PieceFetch::add(WorkerId source, std::vector<bool> holds) {
  ISTHMUS_CHECK(holds.size() == table_.size(), holds.size(), table_.size());
  if (sources_.contains(source)) return;
  for (std::size_t k = 0; k < holds.size(); ++k) holders_[k] += holds[k] ? 1 : 0;
  From& from = sources_[source];
  from.told.rank = source;
  from.holds = std::move(holds);
  from.window = 2 * std::uint64_t{options_.part_bytes};
}

void PieceFetch::let_go(From& source) {
  source.coming.clear();
  source.parts.clear();
  source.ahead = 0;
  source.window = 2 * std::uint64_t{options_.part_bytes};
}

void PieceFetch::give_up(From& source, const std::string& why) {
  if (source.told.gone) return;
  source.told.gone = true;
  let_go(source);
  for (std::size_t k = 0; k < table_.size(); ++k) holders_[k] -= source.holds[k] ? 1 : 0;
  if (source.told.rank == donor_ && !failure_ && !complete()) failure_ = why;
}

void PieceFetch::lose(WorkerId source) {
  const auto found = sources_.find(source);
  if (found != sources_.end()) give_up(found->second, "the site whose state it is has gone");
}

void PieceFetch::take(WorkerId from, std::uint64_t offset, std::span<const std::byte> bytes,
                      TimePoint now) {
  const auto found = sources_.find(from);
  if (found == sources_.end() || found->second.told.gone) return;
  From& source = found->second;
  source.heard = now;
  source.silent = false;
  const auto part = std::ranges::find_if(source.parts, [&](const Part& each) {
    return table_[each.piece].offset + each.begin == offset && each.bytes == bytes.size();
  });
  if (part == source.parts.end()) return;  // asked for before it was let go
  const Part taken = *part;
  source.parts.erase(part);
  source.ahead -= taken.bytes;
  source.sent += taken.bytes;
  pace(source, taken, now);
  const auto coming = source.coming.find(taken.piece);
  if (coming == source.coming.end()) return;  // another source was faster
  Coming& piece = coming->second;
  std::ranges::copy(bytes, piece.bytes.begin() + static_cast<std::ptrdiff_t>(taken.begin));
  piece.come += taken.bytes;
  if (piece.come == table_[taken.piece].bytes) settle(taken.piece, source);
}

// Requests run ahead by the bytes that the best recent rate brings in the shortest round trip, and
// by `queueing` more, which fills the line. The amount grows as it is used, so a first guess floods
// no source.
void PieceFetch::pace(From& source, const Part& part, TimePoint now) {
  const Duration took = std::max<Duration>(now - part.asked, std::chrono::microseconds(10));
  source.least = std::min(source.least, took);
  const double rate = static_cast<double>(source.sent - part.given_before) / in_seconds(took);
  source.rate = std::max(rate, kForgets * source.rate);
  const double wanted = source.rate * in_seconds(source.least + options_.queueing);
  const double most =
      static_cast<double>(std::min<std::uint64_t>(options_.most_ahead, source.window + part.bytes));
  source.window = static_cast<std::uint64_t>(
      std::max(std::min(wanted, most), 2.0 * static_cast<double>(options_.part_bytes)));
}

void PieceFetch::keep(std::size_t piece, std::span<const std::byte> bytes) {
  std::ranges::copy(bytes, state_.begin() + static_cast<std::ptrdiff_t>(table_[piece].offset));
  here_[piece] = true;
  ++right_;
  bytes_here_ += bytes.size();
  for (auto& [rank, source] : sources_) source.coming.erase(piece);
}

bool PieceFetch::put(std::size_t piece, std::span<const std::byte> bytes) {
  ISTHMUS_CHECK(piece < table_.size(), piece, table_.size());
  if (bytes.size() != table_[piece].bytes || xxh3_128(bytes) != table_[piece].digest) return false;
  if (!here_[piece]) keep(piece, bytes);
  return true;
}

void PieceFetch::settle(std::size_t piece, From& source) {
  const StatePiece& wanted = table_[piece];
  const std::vector<std::byte> bytes = std::move(source.coming.at(piece).bytes);
  source.coming.erase(piece);
  if (xxh3_128(bytes) == wanted.digest) {
    keep(piece, bytes);
    given_.push_back(piece);
    source.told.given += wanted.bytes;
    return;
  }
  ++source.told.bad;
  if (source.told.rank !=
      donor_) {  // the source lacks a piece that it announced; the donor gets another chance
    source.holds[piece] = false;
    --holders_[piece];
  }
  if (source.told.bad >= options_.most_bad) {
    give_up(source, fmt::format("the site whose state it is sent {} pieces other than it had said",
                                source.told.bad));
  }
}

bool PieceFetch::fetched_by_another(std::size_t piece, const From& self) const {
  return std::ranges::any_of(sources_, [&](const auto& entry) {
    return &entry.second != &self && !entry.second.silent && entry.second.coming.contains(piece);
  });
}

// Pieces that fewest sources have come first: pieces that only the donor has are its work, while
// the others give the shared ones.
std::optional<std::size_t> PieceFetch::choose(const From& source) const {
  std::optional<std::size_t> best;
  for (std::size_t k = 0; k < table_.size(); ++k) {
    if (here_[k] || !source.holds[k] || source.coming.contains(k)) continue;
    if (best && holders_[k] >= holders_[*best]) continue;
    if (!fetched_by_another(k, source)) best = k;
  }
  return best;
}

std::optional<std::size_t> PieceFetch::choose_to_take_over(const From& source) const {
  if (!source.coming.empty() || source.rate <= 0) return std::nullopt;
  std::optional<std::size_t> best;
  double longest_s = 0;
  for (const auto& [rank, other] : sources_) {
    if (&other == &source || other.coming.empty()) continue;
    std::uint64_t left = 0;
    for (const auto& [piece, coming] : other.coming) left += table_[piece].bytes - coming.come;
    const double left_s = other.rate > 0 ? static_cast<double>(left) / other.rate
                                         : std::numeric_limits<double>::infinity();
    for (const auto& [piece, coming] : other.coming) {
      const double own_s = static_cast<double>(table_[piece].bytes) / source.rate;
      if (!source.holds[piece] || left_s <= kWorthTwice * own_s || left_s <= longest_s) continue;
      best = piece;
      longest_s = left_s;
    }
  }
  return best;
}

void PieceFetch::ask_one(From& source, TimePoint now, std::vector<Ask>& out) {
  const std::uint64_t window = source.silent ? options_.part_bytes : source.window;
  while (source.parts.size() < kMostPartsAhead &&
         (source.ahead == 0 || source.ahead + options_.part_bytes <= window)) {
    auto next = std::ranges::find_if(source.coming, [&](const auto& entry) {
      return entry.second.asked < table_[entry.first].bytes;
    });
    if (next == source.coming.end()) {
      std::optional<std::size_t> piece = choose(source);
      if (!piece) piece = choose_to_take_over(source);
      if (!piece) return;
      next = source.coming.try_emplace(*piece).first;
      next->second.bytes.resize(table_[*piece].bytes);
    }
    auto& [piece, coming] = *next;
    const std::uint32_t bytes = std::min(options_.part_bytes, table_[piece].bytes - coming.asked);
    if (source.parts.empty()) source.heard = now;  // its silence begins here
    source.parts.push_back({.piece = piece,
                            .begin = coming.asked,
                            .bytes = bytes,
                            .asked = now,
                            .given_before = source.sent});
    out.push_back(
        {.from = source.told.rank, .offset = table_[piece].offset + coming.asked, .bytes = bytes});
    coming.asked += bytes;
    source.ahead += bytes;
  }
}

std::vector<PieceFetch::Ask> PieceFetch::ask(TimePoint now) {
  std::vector<Ask> out;
  if (failure_ || complete()) return out;
  for (auto& [rank, source] : sources_) {
    if (source.told.gone || source.parts.empty()) continue;
    if (now - source.heard < options_.patience) continue;
    source.silent = true;
    source.rate = 0;
    if (now - source.heard >= options_.asks_again) let_go(source);
  }
  // Silent sources are asked last: pieces that others can give are left to the others.
  for (const bool silent : {false, true}) {
    for (auto& [rank, source] : sources_) {
      if (!source.told.gone && source.silent == silent) ask_one(source, now, out);
    }
  }
  return out;
}

std::vector<PieceFetch::Source> PieceFetch::sources() const {
  std::vector<Source> all;
  for (const auto& [rank, source] : sources_) all.push_back(source.told);
  return all;
}

std::vector<std::byte> PieceFetch::take_state() {
  ISTHMUS_CHECK(complete(), right_, table_.size());
  return std::exchange(state_, {});
}

}  // namespace isthmus
