// SPDX-License-Identifier: Apache-2.0
// A site that is slow for a while, with net.deadline, in virtual time: the others do not wait for
// it, it catches up by skipping steps, and none of its work is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "outer/toy_loops.h"
#include "session/run/timed_inner_loop.h"
#include "session/site/site_lateness.h"
#include "sim/run_simulated.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing_support::Drift;

constexpr int kSites = 4;
constexpr int kSlow = 3;
constexpr std::int64_t kH = 10;
constexpr std::int64_t kSteps = 300;
constexpr Duration kStep = 100ms;
constexpr Duration kDeadline = 500ms;
constexpr Duration kRound = 100ms;  // one of a few bytes, 20 ms away, takes less

/// When the slow one takes five times as long for a step.
struct Slow {
  TimePoint from{2500ms}, until{14s};
};

/// By site and round, in order.
struct Played {
  std::vector<std::vector<TimePoint>> applied;
  std::vector<std::vector<bool>> counted;
  std::vector<std::vector<float>> anchors;
  std::vector<std::vector<std::int64_t>> taken;  // steps, by the time the round was sent
};

/// Site w falls by w + 1 a step. SGD(1): the anchor falls by the mean of what sites have fallen.
Played play(const std::string& method, const OuterOptions& outer,
            const std::optional<RoundDeadline>& deadline, const Slow& when = {}) {
  Played played;
  for (auto* each : {&played.counted}) each->resize(kSites);
  played.applied.resize(kSites);
  played.anchors.resize(kSites);
  played.taken.resize(kSites);
  SimulationOptions options{.workers = kSites, .seed = 7};
  options.links = uniform_links(kSites, {.bits_per_s = 10'000'000, .one_way = 20ms});
  options.exchange = {.elastic = true, .deadline = deadline};
  (void)run_simulated(options, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    Drift drift(static_cast<float>(w + 1), 8);
    const Clock& clock = context.runtime.clock();
    app::TimedInnerLoop inner(
        drift, context.runtime, context.rank,
        [&](StepIndex) {
          const bool slow = w == kSlow && clock.now() >= when.from && clock.now() < when.until;
          return slow ? 5 * kStep : kStep;
        },
        nullptr);
    app::SiteLateness lateness(true);
    const auto& exchange = dynamic_cast<PeerExchange&>(context.exchange);
    inner.set_skips([&](StepIndex t) {
      return lateness.skips(t, exchange.begun_ahead(), exchange.missed_in_a_row());
    });
    const auto strategy = make_outer_strategy(method, outer, inner, context.exchange);
    std::int64_t taken = 0;
    const auto note = [&](const std::vector<RoundReport>& rounds) {
      for (const RoundReport& round : rounds) {
        played.applied[w].push_back(clock.now());
        played.counted[w].push_back(round.counted);
        played.anchors[w].push_back(strategy->values(0)[0]);
      }
    };
    for (std::int64_t t = 1; t <= kSteps; ++t) {
      const StepReport report = strategy->step();
      taken += report.inner.idle ? 0 : 1;
      if (t % kH == 0) played.taken[w].push_back(taken);
      note(report.rounds);
    }
    note(strategy->finish());
    EXPECT_EQ(lateness.so_far().steps_skipped, kSteps - taken) << "worker " << w;
  });
  return played;
}

/// Longest time between two rounds that a fast site has applied.
Duration longest_round(const Played& played) {
  Duration longest{0};
  for (std::size_t k = 1; k < played.applied[0].size(); ++k) {
    longest = std::max(longest, played.applied[0][k] - played.applied[0][k - 1]);
  }
  return longest;
}

class LateSite : public ::testing::TestWithParam<std::string> {
 protected:
  static OuterOptions outer() {
    OuterOptions outer{.H = kH, .lr = 1.0, .momentum = 0.0};
    if (GetParam() == "streaming-diloco") {
      outer.overlap = 4;
      outer.alpha = 0.0;
    }
    return outer;
  }
};
INSTANTIATE_TEST_SUITE_P(Methods, LateSite, ::testing::Values("diloco", "streaming-diloco"),
                         [](const auto& each) {
                           return each.param == "diloco" ? "AtOnce" : "Overlapped";
                         });

// A site that is cut off has another session when it comes back.
TEST(SiteLateness, CountsOnFromTheSessionsBefore) {
  app::SiteLateness lateness(true, {.rounds = 3, .steps_skipped = 2});
  std::vector<app::LateStatus> heard;
  lateness.watch([&](const app::LateStatus& late) { heard.push_back(late); });
  lateness.stood_in({});
  EXPECT_TRUE(lateness.skips(StepIndex(5), StepIndex(6), 0));
  EXPECT_EQ(heard, (std::vector<app::LateStatus>{{3, 2}, {4, 2}, {4, 3}}));
}

TEST_P(LateSite, HoldsTheOthersUpForTheDeadlineAndARoundAtMost) {
  const Played waited = play(GetParam(), outer(), std::nullopt);
  EXPECT_GE(longest_round(waited), 4 * kH * kStep) << "the site is slow";
  const Played played = play(GetParam(), outer(), RoundDeadline(kDeadline));
  ASSERT_EQ(played.applied[0].size(), static_cast<std::size_t>(kSteps / kH));
  EXPECT_LE(longest_round(played), kH * kStep + kDeadline + kRound);
}

/// What a site has trained on since it was last counted is its next contribution, and weighs it: a
/// naive loop over who was counted and who had taken how many steps. RETURNS: steps of each site
/// that are in the anchor, by round.
std::vector<std::vector<std::int64_t>> expect_carried(const Played& played) {
  std::vector<std::vector<std::int64_t>> entered;
  std::vector<std::int64_t> given(kSites, 0);
  double anchor = 0;
  for (std::size_t k = 0; k < static_cast<std::size_t>(kSteps / kH); ++k) {
    double fall = 0, steps = 0;
    for (std::size_t w = 0; w < kSites; ++w) {
      if (!played.counted[w].at(k)) continue;
      const auto window = static_cast<double>(played.taken[w].at(k) - given[w]);
      fall += window * window * static_cast<double>(w + 1);
      steps += window;
      given[w] = played.taken[w][k];
    }
    anchor -= fall / steps;
    for (std::size_t w = 0; w < kSites; ++w) {
      EXPECT_NEAR(played.anchors[w].at(k), anchor, 1e-5 * std::abs(anchor))
          << "site " << w << " round " << k;
    }
    for (std::size_t w = 0; w < kSlow; ++w) EXPECT_TRUE(played.counted[w][k]);
    entered.push_back(given);
  }
  return entered;
}

TEST(LateSiteOfSgd, LosesNoneOfItsWork) {
  const Played played =
      play("diloco", {.H = kH, .lr = 1.0, .momentum = 0.0}, RoundDeadline(kDeadline));
  const std::vector<std::int64_t> given = expect_carried(played).back();
  EXPECT_GE(std::ranges::count(played.counted[kSlow], false), 2) << "it was late";
  EXPECT_LT(given[kSlow], kSteps) << "it has skipped steps";
  for (std::size_t w = 0; w < kSites; ++w) EXPECT_EQ(given[w], played.taken[w].back());
  // It is fast again from here on.
  const std::size_t rounds = played.counted[kSlow].size();
  for (std::size_t k = rounds - 8; k < rounds; ++k) EXPECT_TRUE(played.counted[kSlow][k]) << k;
}

// Slower than the others by more than the deadline, to the end: what it carries does not grow, and
// of three rounds one counts it.
TEST(LateSiteOfSgd, ContributesHoweverLongItIsSlow) {
  const Slow always{.from = TimePoint{2500ms}, .until = kNever};
  const Played played =
      play("diloco", {.H = kH, .lr = 1.0, .momentum = 0.0}, RoundDeadline(kDeadline), always);
  const auto entered = expect_carried(played);
  EXPECT_GE(std::ranges::count(played.counted[kSlow], false), kSteps / kH / 2) << "it is late";
  // Of a window it gets to take so many steps before the others have gone on without it.
  constexpr auto kOfAWindow = (kH * kStep + kDeadline + kRound) / (5 * kStep) + 1;
  for (std::size_t k = 2; k < entered.size(); ++k) {
    const std::vector<bool>& counted = played.counted[kSlow];
    EXPECT_TRUE(counted[k - 2] || counted[k - 1] || counted[k]) << k;
    if (k < 5) continue;  // it was fast
    EXPECT_LE(played.taken[kSlow][k] - entered[k][kSlow], 2 * kOfAWindow) << k;
    EXPECT_GT(entered[k][kSlow], entered[k - 3][kSlow]) << k;
  }
}

TEST_P(LateSite, ContributesHoweverLongItIsSlow) {
  const Played played = play(GetParam(), outer(), RoundDeadline(kDeadline),
                             {.from = TimePoint{2500ms}, .until = kNever});
  EXPECT_LE(longest_round(played), kH * kStep + kDeadline + kRound);
  const std::vector<bool>& counted = played.counted[kSlow];
  for (std::size_t k = 2; k < counted.size(); ++k) {
    EXPECT_TRUE(counted[k - 2] || counted[k - 1] || counted[k]) << k;
  }
}

// Its rounds of before let nobody expect that it is late: after the shortest time, a second, they
// go on. Who was so slow from the first rounds on is waited for.
TEST_P(LateSite, MayBeLateAsLongAsItsRoundsLetExpect) {
  const RoundDeadline adaptive = RoundDeadline::adaptive(20s);
  const Played sudden =
      play(GetParam(), outer(), adaptive, {.from = TimePoint{15500ms}, .until = TimePoint{25s}});
  EXPECT_GT(std::ranges::count(sudden.counted[kSlow], false), 2);
  EXPECT_LE(longest_round(sudden), kH * kStep + 1s + kRound);
  EXPECT_TRUE(sudden.counted[kSlow].back());
  const Played always = play(GetParam(), outer(), adaptive, {.from = TimePoint{}, .until = kNever});
  EXPECT_EQ(std::ranges::count(always.counted[kSlow], false), 0);
}

}  // namespace
}  // namespace isthmus::this_file
