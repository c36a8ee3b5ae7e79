// SPDX-License-Identifier: Apache-2.0
// Shares that follow what links carry: the form, what is measured, when they move; and the whole
// exchange in virtual time, where links are slow, get slow or fast, and members die meanwhile.
#include "transport/exchange/measured_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "sim/run_simulated.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// ---- the form

TEST(SharesByLines, AreThoseOfTheClosedForm) {
  EXPECT_THAT(shares_by_lines(std::vector{1.0, 1.0, 1.0}, {}), IsEmpty());
  EXPECT_THAT(shares_by_lines(std::vector{4.0, 4.0, 1.0, 4.0}, {}),
              ElementsAre(1365, 1365, 0, 1365));
  // f_i = T b_i / V - 1 for three members: b = 3, 2, 3 gives T = V / 2 and f = 1/2, 0, 1/2.
  EXPECT_THAT(shares_by_lines(std::vector{3.0, 2.0, 3.0}, {}), ElementsAre(2048, 0, 2048));
  EXPECT_DOUBLE_EQ(time_of_shares(std::vector{3.0, 2.0, 3.0}, std::vector<std::uint32_t>{1, 0, 1}),
                   0.5);
  EXPECT_DOUBLE_EQ(
      time_of_shares(std::vector{4.0, 4.0, 1.0, 4.0}, std::vector<std::uint32_t>{1, 1, 1, 1}), 1.5);
}

// ---- what is measured

TEST(ArrivalGauge, TellsTheRateOfABurstWhateverElseIsOnTheLink) {
  ArrivalGauge gauge(3, 2);
  const SyncId id{FragmentId(0), StepIndex(5)}, before{FragmentId(1), StepIndex(4)};
  TimePoint now{1h};
  for (int k = 0; k < 11; ++k) {  // 10 kB each, one every 10 ms, every other one of another round
    gauge.took(WorkerId(1), k % 2 == 0 ? id : before, FrameKind::kContribution, 10'000, now);
    now += 10ms;
  }
  gauge.took(WorkerId(2), id, FrameKind::kContribution, 10'000, now);  // one alone tells nothing
  EXPECT_THAT(gauge.take(id), ElementsAre(0, 1'000'000, 0));
  EXPECT_THAT(gauge.take(id), ElementsAre(0, 0, 0)) << "once";
}

TEST(ArrivalGauge, ResultsComeWhenTheyAreMadeAndTellNothing) {
  ArrivalGauge gauge(2, 1);
  const SyncId id{FragmentId(0), StepIndex(5)};
  for (int k = 0; k < 10; ++k) {
    gauge.took(WorkerId(1), id, FrameKind::kResult, 100'000, TimePoint{k * 1s});
  }
  EXPECT_THAT(gauge.take(id), ElementsAre(0, 0));
}

TEST(ArrivalGauge, FewFramesTellNothingAndAShortTimeTheLeast) {
  const SyncId id{FragmentId(0), StepIndex(5)};
  const auto rate_of = [&](int frames, Duration between, int connections) {
    ArrivalGauge gauge(2, connections);
    TimePoint now{1h};
    for (int k = 0; k < frames; ++k, now += between) {
      gauge.took(WorkerId(1), id, FrameKind::kContribution, 50'000, now);
    }
    return gauge.take(id)[1];
  };
  EXPECT_EQ(rate_of(8, 50ms, 4), 0u) << "four at once, twice";
  EXPECT_EQ(rate_of(9, 50ms, 4), 1'000'000u);
  EXPECT_EQ(rate_of(2, 50ms, 1), 0u);
  EXPECT_EQ(rate_of(3, 50ms, 1), 1'000'000u);
  EXPECT_EQ(rate_of(9, 1ms, 4), 40'000'000u | kAtLeast) << "8 ms";
  EXPECT_EQ(rate_of(9, 0ms, 4), 40'000'000u | kAtLeast);
}

TEST(ArrivalGauge, OfARoundThatBeginsAgainThePauseDoesNotCount) {
  ArrivalGauge gauge(2, 1);
  const SyncId id{FragmentId(0), StepIndex(5)};
  TimePoint now{1h};
  for (int k = 0; k < 10; ++k, now += 50ms) {
    if (k == 4) {
      gauge.forget(id);
      now += 10s;
    }
    gauge.took(WorkerId(1), id, FrameKind::kContribution, 50'000, now);
  }
  EXPECT_EQ(gauge.take(id)[1], 1'000'000u);
}

/// What members of these lines see of one another.
void report_lines(MeasuredShares& shares, const std::vector<std::uint64_t>& lines) {
  for (std::size_t to = 0; to < lines.size(); ++to) {
    std::vector<std::uint64_t> rates(lines.size(), 0);
    for (std::size_t from = 0; from < lines.size(); ++from) {
      if (from != to) rates[from] = std::min(lines[from], lines[to]);
    }
    shares.report(WorkerId(static_cast<int>(to)), rates);
  }
}

TEST(MeasuredShares, MoveOnceAGainIsWorthIt) {
  const std::vector<bool> all(4, true);
  MeasuredShares shares(4, {});
  std::vector<std::uint32_t> now;
  for (int round = 0; round < 10; ++round) {  // alike: no gain
    report_lines(shares, {1000, 1000, 1000, 1000});
    now = shares.after_commit(all);
    EXPECT_FALSE(shares.take_move());
  }
  EXPECT_THAT(now, ElementsAre(1, 1, 1, 1));
  for (int round = 0; round < 10; ++round) {  // a bit slower: less than a tenth
    report_lines(shares, {1000, 950, 1000, 1000});
    now = shares.after_commit(all);
    EXPECT_FALSE(shares.take_move());
  }
  int moves = 0;
  for (int round = 0; round < 30; ++round) {
    report_lines(shares, {1000, 100, 1000, 1000});
    now = shares.after_commit(all);
    const auto move = shares.take_move();
    moves += move ? 1 : 0;
    if (move) {
      EXPECT_GE(move->gain, 1 - 1 / 1.1);
    }
  }
  EXPECT_GE(moves, 1);
  EXPECT_LE(moves, 2);
  const double sum = std::accumulate(now.begin(), now.end(), 0.0);
  EXPECT_NEAR(now[1] / sum, 1.0 / 64, 0.002) << "so much, to be measured";
  for (const int m : {0, 2, 3}) {
    EXPECT_NEAR(now[static_cast<std::size_t>(m)] / sum, 63.0 / 64 / 3, 0.005);
  }
}

// Three sites of one data centre, one far away; what the three send one another is there at once.
TEST(MeasuredShares, LinksTooFastToTellAreNotTheSlowOnesTheirSitesHaveToo) {
  MeasuredShares shares(4, {});
  for (int round = 0; round < 10; ++round) {
    for (std::size_t to = 0; to < 4; ++to) {
      std::vector<std::uint64_t> rates(4, 0);
      for (std::size_t from = 0; from < 4; ++from) {
        if (from == to) continue;
        rates[from] = to == 3 || from == 3 ? 12'500'000 : 400'000'000 | kAtLeast;
      }
      shares.report(WorkerId(static_cast<int>(to)), rates);
    }
    (void)shares.after_commit(std::vector<bool>(4, true));
  }
  const auto move = shares.take_move();
  ASSERT_TRUE(move);
  EXPECT_LT(8 * move->shares[3], move->shares[0]);
}

TEST(MeasuredShares, WhatIsTheLeastMakesNoLinkSlower) {
  MeasuredShares shares(3, {});
  const std::vector<bool> all(3, true);
  report_lines(shares, {1000, 1000, 1000});
  for (int round = 0; round < 10; ++round) {
    for (std::size_t to = 0; to < 3; ++to) {
      std::vector<std::uint64_t> rates(3, 100 | kAtLeast);
      rates[to] = 0;
      if (to != 0) rates[3 - to] = 1000;  // of the other of the last two
      shares.report(WorkerId(static_cast<int>(to)), rates);
    }
    (void)shares.after_commit(all);
    EXPECT_FALSE(shares.take_move());
  }
}

TEST(MeasuredShares, WhoMayOwnNothingStaysWithoutAndWhoseLinesAreUnknownHoldsAllUp) {
  const std::vector<std::uint32_t> first = {1, 0, 1, 1};
  MeasuredShares shares(4, first);
  std::vector<std::uint64_t> rates = {0, 100, 1000, 1000};
  for (int round = 0; round < 20; ++round) {
    shares.report(WorkerId(0), rates);
    EXPECT_EQ(shares.after_commit(std::vector<bool>(4, true)), first);
  }
  for (int round = 0; round < 20; ++round) {
    report_lines(shares, {1000, 1000, 100, 1000});
    (void)shares.after_commit(std::vector<bool>(4, true));
  }
  const std::vector<std::uint32_t> now = shares.after_commit(std::vector<bool>(4, true));
  EXPECT_EQ(now[1], 0u);
  EXPECT_GT(now[2], 0u);
  EXPECT_LT(8 * now[2], now[0]);
}

TEST(MeasuredShares, SurviveTheWireAndRubbishIsRefused) {
  const std::vector<std::uint32_t> shares = {1365, 0, 4000000000u};
  EXPECT_EQ(read_shares(write_shares(shares), 3), shares);
  EXPECT_FALSE(read_shares(write_shares(shares), 4));
  EXPECT_FALSE(read_shares(write_shares(std::vector<std::uint32_t>(3, 0)), 3)) << "nobody owns";
  const std::vector<std::uint64_t> rates = {0, 1ull << 50, 7};
  EXPECT_EQ(read_rates(write_rates(rates), 3), rates);
  std::vector<std::byte> cut = write_rates(rates);
  cut.pop_back();
  EXPECT_FALSE(read_rates(cut, 3));
}

// ---- rounds in virtual time

constexpr std::size_t kValues = 400'000;  // 1.6 MB
/// Of which even the least share comes in several frames, and takes more than a moment.
constexpr std::size_t kManyValues = 2'200'000;

struct Line {
  std::int64_t bits_per_s = 80'000'000;
};
/// Each link as fast as the slower of its ends.
std::vector<DirectedLink> links_of(const std::vector<Line>& lines) {
  std::vector<DirectedLink> links;
  for (const Line& from : lines) {
    for (const Line& to : lines) {
      links.push_back({.bits_per_s = std::min(from.bits_per_s, to.bits_per_s), .one_way = 10ms});
    }
  }
  return links;
}

Digest128 digest_of(const std::vector<float>& values) {
  return xxh3_128(std::as_bytes(std::span(values)));
}

struct Rounds {
  std::vector<double> seconds;    // by round, of member 0
  std::vector<Digest128> values;  // by round, of the means
  std::vector<ShareMove> moves;
  /// Mean of some rounds from one on.
  [[nodiscard]] double mean(std::size_t first, std::size_t count) const {
    const auto at = seconds.begin() + static_cast<std::ptrdiff_t>(first);
    return std::accumulate(at, at + static_cast<std::ptrdiff_t>(count), 0.0) /
           static_cast<double>(count);
  }
};

Rounds run_rounds(int count, SimulationOptions options, std::size_t values = kValues) {
  options.workers = static_cast<int>(std::lround(std::sqrt(options.links.size())));
  Rounds rounds;
  options.exchange.on_shares = [&](const ShareMove& move) { rounds.moves.push_back(move); };
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  (void)run_simulated(options, [&](WorkerContext& context) {
    Contribution own = contribution_of(codec, context.rank, values, {}, ReductionKind::kReduce);
    for (int round = 0; round < count; ++round) {
      context.runtime.compute(100ms, [] {});
      const TimePoint begin = context.runtime.clock().now();
      own.id = {FragmentId(round % 2), StepIndex(1 + round)};
      const Ticket ticket = context.exchange.begin(own);
      auto reduced = context.exchange.wait(ticket, 1h);
      ASSERT_TRUE(reduced.has_value()) << reduced.error().what;
      if (context.rank == WorkerId(0)) {
        rounds.seconds.push_back(
            std::chrono::duration<double>(context.runtime.clock().now() - begin).count());
        rounds.values.push_back(digest_of(reduced->values));
      }
    }
  });
  return rounds;
}

PeerExchangeOptions measured() { return {.retry_interval = kNothingIsLost, .moves_shares = true}; }

TEST(MeasuredSharesInVirtualTime, ComeCloseToThoseOfDeclaredLinksAndChangeNoBit) {
  const std::vector<DirectedLink> links = links_of({{}, {}, {20'000'000}, {}});
  const Rounds even =
      run_rounds(20, {.links = links, .exchange = {.retry_interval = kNothingIsLost}});
  const Rounds by_links = run_rounds(
      20, {.links = links,
           .exchange = {.retry_interval = kNothingIsLost,
                        .shares = shares_by_lines(std::vector{4.0, 4.0, 1.0, 4.0}, {})}});
  const Rounds followed = run_rounds(20, {.links = links, .exchange = measured()});
  EXPECT_EQ(followed.values, even.values);
  EXPECT_EQ(followed.values, by_links.values);
  EXPECT_NEAR(followed.mean(0, 3), even.mean(0, 3), 0.01 * even.mean(0, 3)) << "not yet";
  EXPECT_LT(by_links.mean(12, 8), 0.8 * even.mean(12, 8));  // two thirds, and delays
  EXPECT_LT(followed.mean(12, 8), 1.05 * by_links.mean(12, 8));
  EXPECT_EQ(followed.moves.size(), 1u);
}

TEST(MeasuredSharesInVirtualTime, WhereLinksAreAlikeNothingMoves) {
  const Rounds followed =
      run_rounds(20, {.links = links_of({{}, {}, {}, {}}), .exchange = measured()});
  EXPECT_THAT(followed.moves, IsEmpty());
}

// Member 1's line falls to a tenth in the middle of a round, and is whole again later.
TEST(MeasuredSharesInVirtualTime, FollowALineThatFallsToATenthAndComesBack) {
  SimulationOptions options{.links = links_of({{}, {}, {}}), .exchange = measured()};
  for (const int other : {0, 2}) {
    const RateProfile profile({{TimePoint{}, 80'000'000},
                               {TimePoint{5s + 300ms}, 8'000'000},
                               {TimePoint{150s}, 80'000'000}});
    options.network.profiles.emplace(std::pair(1, other), profile);
    options.network.profiles.emplace(std::pair(other, 1), profile);
  }
  const Rounds followed = run_rounds(55, options, kManyValues);
  options.exchange.moves_shares = false;
  const Rounds even = run_rounds(25, options, kManyValues);
  for (std::size_t r = 0; r < 25; ++r) ASSERT_EQ(followed.values[r], even.values[r]) << r;
  const double before = followed.mean(0, 4);
  EXPECT_NEAR(even.mean(18, 5), 10 * before, 2 * before) << "in the middle of the slow time";
  EXPECT_LT(followed.mean(18, 5), 0.85 * even.mean(18, 5));
  EXPECT_LT(followed.mean(47, 8), 1.1 * before) << "and it owns again";
  ASSERT_GE(followed.moves.size(), 2u);
  EXPECT_LT(followed.moves.front().shares[1], followed.moves.front().shares[0] / 8);
  const ShareMove& last = followed.moves.back();
  EXPECT_GT(last.shares[1], last.shares[0] / 2);
}

// A member dies while shares move: the others' results are the mean over who contributed.
TEST(MeasuredSharesInVirtualTime, AMemberMayDieWhileTheyMove) {
  const std::vector<DirectedLink> links = links_of({{}, {}, {20'000'000}, {}});
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const Digest128 of_four =
      digest_of(naive_mean(*codec, {WorkerId(0), WorkerId(1), WorkerId(2), WorkerId(3)}, kValues,
                           ReductionKind::kReduce));
  const Digest128 of_the_others = digest_of(
      naive_mean(*codec, {WorkerId(0), WorkerId(1), WorkerId(2)}, kValues, ReductionKind::kReduce));
  for (int moment = 0; moment < 12; ++moment) {
    SimulationOptions options{.links = links, .exchange = measured()};
    options.exchange.elastic = true;
    options.network.faults.crashes = {{WorkerId(3), TimePoint{1s + moment * 110ms}}};
    const Rounds rounds = run_rounds(14, options);
    ASSERT_EQ(rounds.values.size(), 14u);
    int of_all = 0, of_three = 0;
    for (std::size_t r = 0; r < rounds.values.size(); ++r) {
      const bool all = rounds.values[r] == of_four;
      const bool three = rounds.values[r] == of_the_others;
      ASSERT_NE(all, three) << "moment " << moment << " round " << r;
      of_all += all ? 1 : 0;
      of_three += three ? 1 : 0;
    }
    EXPECT_GT(of_all, 0);
    EXPECT_GT(of_three, 0);
    EXPECT_FALSE(rounds.moves.empty()) << moment;
  }
}

}  // namespace
}  // namespace isthmus::this_file
