// SPDX-License-Identifier: Apache-2.0
// A state that comes in pieces from several sources: some die, lie, are slow or fall silent. What
// the joiner ends with is held against the donor's bytes.
#include "transport/exchange/catch_up/piece_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "core/base/rng.h"
#include "transport/exchange/catch_up/donor_throttle.h"
#include "transport/random_bytes.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

TEST(PieceTable, PiecesSpanNoBorderAndCoverAll) {
  const std::vector<std::byte> state = random_bytes(1, 9'000'000);
  const std::vector<std::uint64_t> borders = {0, 24, 24, 100'000, 8'999'990};
  const PieceTable table = cut_pieces(state, borders);
  std::vector<std::uint64_t> offsets;
  for (const StatePiece& piece : table) offsets.push_back(piece.offset);
  EXPECT_THAT(offsets,
              ElementsAre(0, 24, 100'000, 100'000 + (4 << 20), 100'000 + (8 << 20), 8'999'990));
  EXPECT_EQ(table_bytes(table), state.size());
  for (const StatePiece& piece : table) {
    EXPECT_EQ(piece.digest, xxh3_128(std::span(state).subspan(piece.offset, piece.bytes)));
  }
  const auto read = read_table(write_table(table));
  ASSERT_TRUE(read.has_value()) << read.error();
  EXPECT_EQ(*read, table);
  EXPECT_EQ(find_piece(table, 24, 99'976), 1u);
  EXPECT_EQ(find_piece(table, 99'999, 2), std::nullopt) << "of two pieces";
  EXPECT_EQ(find_piece(table, 9'000'000, 1), std::nullopt);
  EXPECT_EQ(find_piece(table, 0, 0), std::nullopt);
}

TEST(PieceTable, WhatIsAlikeIsFoundWhereverItLies) {
  const std::vector<std::byte> shared = random_bytes(2, 5'000'000);
  std::vector<std::byte> one = random_bytes(3, 100);
  std::vector<std::byte> other = random_bytes(4, 7);
  const std::vector<std::uint64_t> one_borders = {100, 5'000'100};
  const std::vector<std::uint64_t> other_borders = {7, 5'000'007};
  one.insert(one.end(), shared.begin(), shared.end());
  other.insert(other.end(), shared.begin(), shared.end());
  other.push_back(std::byte{3});
  const auto matched = match_pieces(cut_pieces(one, one_borders), cut_pieces(other, other_borders));
  EXPECT_THAT(matched, ElementsAre(std::nullopt, std::optional<std::uint64_t>(7),
                                   std::optional<std::uint64_t>(7 + (4 << 20))));
}

TEST(PieceFetch, WhatIsPutNeedsNotBeAskedFor) {
  const std::vector<std::byte> state = random_bytes(5, 300'000);
  const std::vector<std::uint64_t> borders = {100'000, 200'000};
  const PieceTable table = cut_pieces(state, borders);
  PieceFetch fetch(table, WorkerId(0));
  const auto piece = [&](std::size_t k) {
    return std::span(state).subspan(table[k].offset, table[k].bytes);
  };
  EXPECT_FALSE(fetch.put(0, piece(1)));
  EXPECT_FALSE(fetch.put(0, piece(0).first(99'999)));
  EXPECT_TRUE(fetch.put(0, piece(0)));
  EXPECT_TRUE(fetch.put(0, piece(0)));
  EXPECT_TRUE(fetch.put(2, piece(2)));
  EXPECT_EQ(fetch.bytes_here(), 200'000u);
  EXPECT_TRUE(fetch.given().empty());
  const auto asked = fetch.ask(TimePoint(1s));
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].offset, 100'000u);
  fetch.take(WorkerId(0), asked[0].offset, piece(1), TimePoint(2s));
  EXPECT_THAT(fetch.given(), ElementsAre(1));
  ASSERT_TRUE(fetch.complete());
  EXPECT_EQ(fetch.take_state(), state);
}

TEST(PieceTable, RefusesWhatIsNone) {
  const std::vector<std::byte> state(100);
  const std::vector<std::byte> bytes = write_table(cut_pieces(state, {}));
  EXPECT_FALSE(read_table(std::span(bytes).first(11)));
  EXPECT_FALSE(read_table(std::span(bytes).first(bytes.size() - 1)));
  std::vector<std::byte> empty_piece = bytes;
  empty_piece[12] = std::byte{0};
  EXPECT_FALSE(read_table(empty_piece));
  std::vector<std::byte> too_large = bytes;
  too_large[15] = std::byte{1};
  EXPECT_FALSE(read_table(too_large));
}

/// What a source does with what it is asked for.
struct Kind {
  double bytes_per_s = 1e6;
  Duration latency = 10ms;
  bool lies = false;
  Duration dies = kNever - TimePoint{};  // after the start
  Duration falls_silent = kNever - TimePoint{};
};

/// A joiner and its sources in virtual time. Each source answers in order, at its own rate.
struct World {
  explicit World(std::vector<std::byte> donor_state, std::vector<std::uint64_t> borders)
      : state(std::move(donor_state)),
        table(cut_pieces(state, borders)),
        fetch(table, WorkerId(0)) {}

  void source(int rank, const Kind& kind, std::vector<bool> holds = {}) {
    kinds[rank] = kind;
    if (rank != 0)
      fetch.add(WorkerId(rank), holds.empty() ? std::vector(table.size(), true) : holds);
  }

  void ask() {
    for (const PieceFetch::Ask& each : fetch.ask(now)) {
      const int rank = each.from.value();
      ASSERT_FALSE(dead.contains(rank)) << "asks who is gone";
      ASSERT_TRUE(find_piece(table, each.offset, each.bytes).has_value());
      const Kind& kind = kinds.at(rank);
      asked += each.bytes;
      TimePoint& free = busy[rank];
      free = std::max(free, now + kind.latency) +
             std::chrono::duration_cast<Duration>(
                 std::chrono::duration<double>(each.bytes / kind.bytes_per_s));
      if (free - TimePoint{} < std::min(kind.falls_silent, kind.dies)) arrivals.emplace(free, each);
    }
  }

  /// RETURNS: whether the state was whole by `limit`.
  bool run(Duration limit) {
    ask();
    TimePoint tick = now + 200ms;
    while (!fetch.complete() && !fetch.failure() && now - TimePoint{} < limit) {
      now = arrivals.empty() ? tick : std::min(tick, arrivals.begin()->first);
      if (now == tick) tick += 200ms;
      for (const auto& [rank, kind] : kinds) {
        if (now - TimePoint{} >= kind.dies && dead.insert(rank).second) fetch.lose(WorkerId(rank));
      }
      while (!arrivals.empty() && arrivals.begin()->first <= now) {
        const PieceFetch::Ask each = arrivals.begin()->second;
        arrivals.erase(arrivals.begin());
        std::vector<std::byte> bytes(
            state.begin() + static_cast<std::ptrdiff_t>(each.offset),
            state.begin() + static_cast<std::ptrdiff_t>(each.offset + each.bytes));
        if (kinds.at(each.from.value()).lies) bytes[bytes.size() / 2] ^= std::byte{1};
        fetch.take(each.from, each.offset, bytes, now);
      }
      ask();
    }
    return fetch.complete();
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(now - TimePoint{}).count();
  }
  PieceFetch::Source told(int rank) const {
    for (const PieceFetch::Source& each : fetch.sources()) {
      if (each.rank == WorkerId(rank)) return each;
    }
    return {};
  }

  const std::vector<std::byte> state;
  const PieceTable table;
  PieceFetch fetch;
  std::map<int, Kind> kinds;
  std::set<int> dead;
  std::map<int, TimePoint> busy;
  std::multimap<TimePoint, PieceFetch::Ask> arrivals;
  std::uint64_t asked = 0;
  TimePoint now;
};

World world(unsigned seed, std::size_t bytes = 40'000'000) {
  return World(random_bytes(seed, bytes), {1000, 2'000'000});
}

TEST(PieceFetch, SourcesAddUp) {
  World one = world(1);
  one.source(0, {.bytes_per_s = 5e6});
  ASSERT_TRUE(one.run(60s));
  EXPECT_NEAR(one.seconds(), 8.0, 0.8);
  World three = world(1);
  for (int rank = 0; rank < 3; ++rank) three.source(rank, {.bytes_per_s = 5e6});
  ASSERT_TRUE(three.run(60s));
  EXPECT_LT(three.seconds(), 8.0 / 3 * 1.25);  // the last pieces are not even
  EXPECT_EQ(three.fetch.take_state(), three.state);
  EXPECT_LE(three.asked, three.state.size() * 5 / 4) << "little is asked for twice";
}

TEST(PieceFetch, TheDonorsOwnPiecesAreItsWork) {
  World all = world(2);
  std::vector<bool> shared(all.table.size());
  for (std::size_t k = 0; k < shared.size(); ++k) shared[k] = k >= shared.size() / 2;
  all.source(0, {.bytes_per_s = 5e6});
  all.source(1, {.bytes_per_s = 5e6}, shared);
  ASSERT_TRUE(all.run(60s));
  EXPECT_LT(all.seconds(), 4.0 * 1.3);
  EXPECT_GT(all.told(1).given, all.state.size() / 3);
}

TEST(PieceFetch, ASlowSourceHoldsNobodyUp) {
  World all = world(3);
  all.source(0, {.bytes_per_s = 5e6});
  all.source(1, {.bytes_per_s = 5e6});
  all.source(2, {.bytes_per_s = 2e4});
  ASSERT_TRUE(all.run(100s));
  EXPECT_LT(all.seconds(), 8.0) << "a piece of it alone takes 200 s";
  EXPECT_EQ(all.fetch.take_state(), all.state);
}

// A part alone takes longer than a silence: what was asked is waited for, not asked for again.
TEST(PieceFetch, ASlowDonorAloneIsAskedForEverythingOnce) {
  for (const double bytes_per_s : {2e4, 5e3, 1e3}) {
    World alone(random_bytes(8, 600'000), {1000});
    alone.source(0, {.bytes_per_s = bytes_per_s});
    const double least_s = 600'000 / bytes_per_s;
    ASSERT_TRUE(alone.run(std::chrono::seconds(static_cast<int>(2 * least_s)))) << bytes_per_s;
    EXPECT_LT(alone.seconds(), least_s * 1.05 + 1);
    EXPECT_EQ(alone.asked, alone.state.size());
    EXPECT_EQ(alone.fetch.take_state(), alone.state);
  }
}

TEST(PieceFetch, WhatASilentSourceWasAskedForOthersGive) {
  World all = world(9, 6'000'000);
  all.source(0, {.bytes_per_s = 1e5});
  all.source(1, {.bytes_per_s = 1e6, .falls_silent = 1s});
  ASSERT_TRUE(all.run(100s));
  EXPECT_EQ(all.fetch.take_state(), all.state);
  EXPECT_LE(all.asked, all.state.size() + (std::size_t{5} << 20)) << "its unfinished pieces alone";
}

TEST(PieceFetch, WhatWasLostIsAskedForAgainInTheEnd) {
  World lost(random_bytes(10, 600'000), {1000});
  lost.source(0, {.bytes_per_s = 1e5, .falls_silent = 1s});
  EXPECT_FALSE(lost.run(290s));
  lost.kinds.at(0).falls_silent = kNever - TimePoint{};
  EXPECT_TRUE(lost.run(400s));
  EXPECT_EQ(lost.fetch.take_state(), lost.state);
}

TEST(PieceFetch, WhoLiesIsAskedNoMore) {
  World all = world(4);
  all.source(0, {.bytes_per_s = 1e6});
  all.source(1, {.bytes_per_s = 5e7, .lies = true});
  ASSERT_TRUE(all.run(100s));
  EXPECT_EQ(all.fetch.take_state(), all.state);
  EXPECT_EQ(all.told(1).bad, 3);
  EXPECT_TRUE(all.told(1).gone);
  EXPECT_EQ(all.told(1).given, 0u);
  EXPECT_EQ(all.told(0).bad, 0);
}

TEST(PieceFetch, EndsWithADonorThatGoesOrLies) {
  World gone = world(5);
  gone.source(0, {.dies = 500ms});
  gone.source(1, {});
  EXPECT_FALSE(gone.run(100s));
  EXPECT_TRUE(gone.fetch.failure().has_value());
  World lies = world(5);
  lies.source(0, {.lies = true});
  EXPECT_FALSE(lies.run(100s));
  EXPECT_TRUE(lies.fetch.failure().has_value());
}

TEST(PieceFetch, WhatWasNotAskedForIsLeftAside) {
  World all = world(6, 3'000'000);
  const std::vector<std::byte> bytes(1000, std::byte{7});
  all.fetch.take(WorkerId(0), 0, bytes, all.now);
  all.fetch.take(WorkerId(9), 0, bytes, all.now);
  all.fetch.take(WorkerId(0), 1ULL << 60, bytes, all.now);
  EXPECT_EQ(all.fetch.bytes_here(), 0u);
  all.source(0, {});
  ASSERT_TRUE(all.run(100s));
  EXPECT_EQ(all.fetch.take_state(), all.state);
}

TEST(PieceFetch, WhoeverDiesLiesOrFallsSilentTheBytesAreTheDonors) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Rng rng(seed, Stream::kTestData);
    std::uint64_t draws = 1ULL << 40;  // far from those of the bytes
    const auto chance = [&](double p) { return rng.uniform(draws++) < p; };
    const auto between = [&](int low, int high) {
      return low + static_cast<int>(rng.below(static_cast<std::uint64_t>(high - low + 1), draws++));
    };
    std::vector<std::uint64_t> borders;
    const int bytes = between(1, 6'000'000);
    for (int k = between(0, 20); k > 0; --k)
      borders.push_back(static_cast<std::uint64_t>(between(0, bytes)));
    std::ranges::sort(borders);
    World all(random_bytes(seed, static_cast<std::size_t>(bytes)), borders);
    const int sources = between(1, 5);
    for (int rank = 0; rank < sources; ++rank) {
      Kind kind{.bytes_per_s = 1e4 * static_cast<double>(between(10, 1000)),
                .latency = std::chrono::milliseconds(between(0, 300))};
      if (rank > 0) {
        kind.lies = chance(0.25);
        if (chance(0.25)) kind.dies = std::chrono::milliseconds(between(0, 5000));
        if (chance(0.25)) kind.falls_silent = std::chrono::milliseconds(between(0, 5000));
      }
      std::vector<bool> holds(all.table.size());
      for (std::size_t k = 0; k < holds.size(); ++k) holds[k] = chance(0.7);
      all.source(rank, kind, holds);
    }
    ASSERT_TRUE(all.run(1000s)) << all.fetch.failure().value_or("time was up");
    ASSERT_EQ(all.fetch.take_state(), all.state);
    for (const PieceFetch::Source& each : all.fetch.sources()) {
      const Kind& kind = all.kinds.at(each.rank.value());
      EXPECT_FALSE(each.bad > 0 && !kind.lies) << "an honest source is found wrong";
      EXPECT_FALSE(kind.lies && each.given > 0) << "a liar's piece was taken";
      EXPECT_LE(each.bad, 3);
    }
  }
}

TEST(DonorThrottle, IsFreeBetweenRoundsAndATenthWithin) {
  DonorThrottle pace{std::nullopt};
  const TimePoint begin{1h};
  Duration open{0};
  for (TimePoint now = begin; now < begin + 100s; now += 1ms) {
    if (pace.open(now, true)) open += 1ms;
  }
  EXPECT_GT(open, 5s);
  EXPECT_LT(open, 10s);
  for (TimePoint now = begin + 200s; now < begin + 201s; now += 10ms) {
    EXPECT_TRUE(pace.open(now, false));
  }
  EXPECT_FALSE(pace.open(begin + 202s, true)) << "the round comes first";
}

TEST(DonorThrottle, KeepsToARate) {
  DonorThrottle pace{1e6};
  const TimePoint begin{1h};
  std::uint64_t bytes = 0;
  for (TimePoint now = begin; now < begin + 10s; now += 1ms) {
    if (!pace.open(now, true)) continue;
    pace.spend(now, 10'000);
    bytes += 10'000;
  }
  EXPECT_NEAR(static_cast<double>(bytes), 1.25e6, 3e4);
}

}  // namespace
}  // namespace isthmus::this_file
