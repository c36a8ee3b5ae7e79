// SPDX-License-Identifier: Apache-2.0
// final_sync: which steps reach the outer parameters, by a loop whose values fall by the same
// amount each step. With lr = 1 and no momentum the outer parameters then count the steps that they
// hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "outer/parts/run_end.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::Drift;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

constexpr std::int64_t kH = 5;
constexpr std::array<float, 2> kRates = {0.5f, 1.5f};  // of two workers; 1 in the mean

struct Way {
  std::string method;
  std::int64_t overlap = 0;
  bool round_behind = false;
};
const std::vector<Way> kWays = {{.method = "localsgd"},
                                {.method = "diloco"},
                                {.method = "streaming-diloco"},
                                {.method = "streaming-diloco", .overlap = 2},
                                {.method = "delayed", .round_behind = true},
                                {.method = "co2", .round_behind = true},
                                {.method = "eager", .round_behind = true}};

OuterOptions options_of(const Way& way) {
  OuterOptions options{.H = kH};
  if (way.method != "localsgd") {
    options.lr = 1;
    options.momentum = 0;
  }
  if (way.method == "streaming-diloco") options.alpha = 1;  // no step is mixed away
  options.overlap = way.overlap;
  return options;
}

/// Outer parameters of both workers after finish(), and what it reported at worker 0.
struct Ended {
  std::array<float, 2> values;
  std::vector<RoundReport> last;
};
Ended run(const Way& way, const OuterOptions& options, std::int64_t steps) {
  Ended ended;
  run_in_process(2, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    Drift inner(kRates[w]);
    const auto strategy = make_outer_strategy(way.method, options, inner, context.exchange);
    for (std::int64_t t = 0; t < steps; ++t) (void)strategy->step();
    std::vector<RoundReport> last = strategy->finish();
    ended.values[w] = strategy->values(0)[0];
    if (w == 0) ended.last = std::move(last);
    EXPECT_TRUE(strategy->finish().empty()) << way.method << ": nothing is left to send";
  });
  return ended;
}

/// Steps in rounds that are applied, from the rules of each method.
std::int64_t carried(const Way& way, FinalSync sync, std::int64_t steps) {
  if (sync == FinalSync::kFull) return steps;
  const std::int64_t whole = steps / kH * kH;
  if (sync == FinalSync::kDrain) return whole;
  if (way.round_behind) return std::max<std::int64_t>(0, whole - kH);
  return whole + way.overlap <= steps ? whole : std::max<std::int64_t>(0, whole - kH);
}

TEST(ClosingRound, EveryStepIsInTheOuterParametersByDefault) {
  for (const Way& way : kWays) {
    for (std::int64_t steps = 1; steps <= 3 * kH + 1; ++steps) {
      const Ended ended = run(way, options_of(way), steps);
      EXPECT_EQ(ended.values[0], -static_cast<float>(steps)) << way.method << ", " << steps;
      EXPECT_EQ(ended.values[1], -static_cast<float>(steps)) << way.method << ", " << steps;
    }
  }
}

TEST(ClosingRound, DrainAndNoneStayAsTheyWere) {
  for (const Way& way : kWays) {
    if (way.method == "eager") continue;
    for (const FinalSync sync : {FinalSync::kNone, FinalSync::kDrain}) {
      for (std::int64_t steps = 1; steps <= 3 * kH + 1; ++steps) {
        OuterOptions options = options_of(way);
        options.final_sync = sync;
        const auto expected = -static_cast<float>(carried(way, sync, steps));
        EXPECT_EQ(run(way, options, steps).values[0], expected)
            << way.method << ", " << steps << ", " << final_sync_name(sync);
      }
    }
  }
}

// The round of the last step is awaited, and nothing is sent a second time.
TEST(ClosingRound, EagerWithoutAnOpenWindowAwaitsItsLastRound) {
  const Way& eager = kWays.back();
  for (const std::int64_t steps : {kH, 2 * kH}) {
    const Ended ended = run(eager, options_of(eager), steps);
    ASSERT_EQ(ended.last.size(), 1u);
    EXPECT_EQ(ended.last[0].sent, StepIndex(steps));
    EXPECT_EQ(ended.last[0].applied, StepIndex(steps));
    EXPECT_FALSE(ended.last[0].closing);
  }
}

// Of the last round each worker has its own half alone, which RunEnd says.
TEST(ClosingRound, EagerThatDrainsHasItsOwnPartOfTheLastRound) {
  const Way& eager = kWays.back();
  for (const FinalSync sync : {FinalSync::kNone, FinalSync::kDrain, FinalSync::kFull}) {
    OuterOptions options = options_of(eager);
    options.final_sync = sync;
    for (const std::int64_t steps : {kH - 1, kH, 2 * kH, 2 * kH + 3}) {
      const outer::RunEnd end = outer::run_end("eager", options, 1, steps);
      const Ended ended = run(eager, options, steps);
      EXPECT_EQ(end.own_part_only, sync == FinalSync::kFull || steps < kH ? 0 : kH) << steps;
      for (std::size_t w = 0; w < 2; ++w) {
        const auto whole =
            static_cast<float>(steps - end.own_part_only - outer::longest(end.uncarried));
        EXPECT_EQ(ended.values[w],
                  -whole - 0.5f * kRates[w] * static_cast<float>(end.own_part_only))
            << steps << ", worker " << w;
      }
    }
  }
}

TEST(ClosingRound, OfSparselocoCarriesEveryStepToo) {
  for (std::int64_t steps = 1; steps <= 2 * kH; ++steps) {
    run_in_process(2, [&](WorkerContext& context) {
      Drift inner(1);  // alike: contributions are cut to the median norm
      const auto strategy = make_outer_strategy("sparseloco", {.H = kH, .lr = 1.0, .codec = "fp32"},
                                                inner, context.exchange);
      for (std::int64_t t = 0; t < steps; ++t) (void)strategy->step();
      const std::vector<RoundReport> last = strategy->finish();
      EXPECT_EQ(strategy->values(0)[0], -static_cast<float>(steps));
      EXPECT_EQ(last.size(), steps % kH == 0 ? 0u : 1u);
      for (const RoundReport& round : last) EXPECT_TRUE(round.closing);
    });
  }
}

TEST(ClosingRound, IsReportedAsOneWithItsBytes) {
  for (const Way& way : kWays) {
    const Ended ended = run(way, options_of(way), 2 * kH + 4);
    ASSERT_FALSE(ended.last.empty()) << way.method;
    for (const RoundReport& round : ended.last) {
      EXPECT_EQ(round.closing, round.sent == StepIndex(2 * kH + 4)) << way.method;
      EXPECT_EQ(round.applied, StepIndex(2 * kH + 4)) << way.method;
      EXPECT_EQ(round.payload_bytes, sizeof(float)) << way.method;
      EXPECT_EQ(round.members, 2) << way.method;
    }
    EXPECT_TRUE(ended.last.back().closing) << way.method;
  }
}

TEST(ClosingRound, OneWorkerMovesItsOwnAnchor) {
  for (const Way& way : kWays) {
    run_in_process(1, [&](WorkerContext& context) {
      Drift inner(1);
      const auto strategy =
          make_outer_strategy(way.method, options_of(way), inner, context.exchange);
      for (int t = 0; t < 3; ++t) (void)strategy->step();
      (void)strategy->finish();
      EXPECT_EQ(strategy->values(0)[0], -3) << way.method;
    });
  }
}

TEST(ClosingRound, AResumedRunEndsAsTheUninterruptedOne) {
  constexpr std::int64_t kSteps = 2 * kH + 3;
  for (const Way& way : kWays) {
    for (const std::int64_t stop : {std::int64_t{2}, kH, kH + 1, 2 * kH, 2 * kH + 2}) {
      std::array<MemoryState, 2> saved;
      std::array<std::array<float, 1>, 2> local{};
      std::array<float, 2> values{};
      run_in_process(2, [&](WorkerContext& context) {
        const auto w = static_cast<std::size_t>(context.rank.value());
        Drift inner(kRates[w]);
        const auto strategy =
            make_outer_strategy(way.method, options_of(way), inner, context.exchange);
        for (std::int64_t t = 0; t < stop; ++t) (void)strategy->step();
        strategy->save(saved[w]);
        local[w] = {inner.value()};
      });
      run_in_process(2, [&](WorkerContext& context) {
        const auto w = static_cast<std::size_t>(context.rank.value());
        Drift inner(kRates[w]);
        inner.set(local[w]);
        const auto strategy =
            make_outer_strategy(way.method, options_of(way), inner, context.exchange);
        strategy->load(saved[w]);
        while (strategy->steps() < StepIndex(kSteps)) (void)strategy->step();
        (void)strategy->finish();
        values[w] = strategy->values(0)[0];
      });
      EXPECT_EQ(values[0], -static_cast<float>(kSteps)) << way.method << ", " << stop;
      EXPECT_EQ(values[1], -static_cast<float>(kSteps)) << way.method << ", " << stop;
    }
  }
}

// Which fragments the closing round sends, and how many steps each has trained since it was sent.
TEST(RunEnd, IsWhatARunOfFragmentsDoes) {
  for (const std::int64_t steps : {1, 3, 7, 8, 9, 10, 13, 16, 21}) {
    for (const bool zero : {false, true}) {
      OuterOptions options{.H = 8, .fragments = 3, .alpha = 0.5};
      if (zero) options.offsets = OffsetsZero{};
      std::vector<std::int64_t> last(4, 0);
      std::set<int> sent_at_the_end;
      std::int64_t regular = 0;
      run_in_process(1, [&](WorkerContext& context) {
        QuadraticLoop inner({.tensors = {{kNoLayer, 5}, {0, 3}, {1, 4}, {2, 7}}});
        const auto strategy =
            make_outer_strategy("streaming-diloco", options, inner, context.exchange);
        for (std::int64_t t = 0; t < steps; ++t) {
          for (const RoundReport& round : strategy->step().rounds) {
            last[static_cast<std::size_t>(round.fragment.value())] = round.sent.value();
            ++regular;
          }
        }
        for (const RoundReport& round : strategy->finish()) {
          EXPECT_TRUE(round.closing);
          sent_at_the_end.insert(round.fragment.value());
        }
      });
      const outer::RunEnd end = outer::run_end("streaming-diloco", options, 4, steps);
      EXPECT_EQ(end.rounds, regular) << steps;
      EXPECT_TRUE(end.uncarried.empty());
      std::set<int> closing;
      for (const outer::LastWindow& window : end.closing) {
        closing.insert(window.fragment.value());
        EXPECT_EQ(window.steps, steps - last[static_cast<std::size_t>(window.fragment.value())]);
      }
      EXPECT_EQ(closing, sent_at_the_end) << steps;
    }
  }
}

TEST(RunEnd, KnowsWhichStepsNoRoundCarries) {
  for (const Way& way : kWays) {
    if (way.method == "eager") continue;
    for (const FinalSync sync : {FinalSync::kNone, FinalSync::kDrain, FinalSync::kFull}) {
      for (std::int64_t steps = 1; steps <= 3 * kH + 1; ++steps) {
        OuterOptions options = options_of(way);
        options.final_sync = sync;
        const outer::RunEnd end = outer::run_end(way.method, options, 1, steps);
        EXPECT_EQ(outer::longest(end.uncarried), steps - carried(way, sync, steps))
            << way.method << ", " << steps << ", " << final_sync_name(sync);
        EXPECT_EQ(outer::longest(end.closing), sync == FinalSync::kFull ? steps % kH : 0);
      }
    }
  }
}

TEST(RunEnd, OfMethodsThatSendEveryStepLeavesNothingOver) {
  for (const char* const method : {"ddp", "1bit-adam", "spsa"}) {
    const outer::RunEnd end = outer::run_end(method, {}, 1, 17);
    EXPECT_EQ(end.rounds, 17);
    EXPECT_TRUE(end.closing.empty() && end.uncarried.empty()) << method;
  }
  // Frozen after 4 steps, a sync every second step after 8 and every fourth after 12.
  OuterOptions rare;
  rare.zero_one_adam = {.var_freeze_step = 4, .var_update_scaler = 16, .local_step_scaler = 4};
  EXPECT_EQ(outer::longest(outer::run_end("01-adam", rare, 1, 11).closing), 1);
  EXPECT_EQ(outer::longest(outer::run_end("01-adam", rare, 1, 15).closing), 3);
  EXPECT_EQ(outer::longest(outer::run_end("01-adam", rare, 1, 16).closing), 0);
}

// A state that was saved before the value was has no such name, and the caller supplies the value.
TEST(FinalSyncOfAState, IsPartOfWhatMustBeAlike) {
  run_in_process(1, [&](WorkerContext& context) {
    Drift inner(1);
    MemoryState state;
    OuterOptions options = options_of(kWays[1]);
    make_outer_strategy("diloco", options, inner, context.exchange)->save(state);
    EXPECT_EQ(state.text("outer/final_sync"), "full");
    options.final_sync = FinalSync::kDrain;
    try {
      make_outer_strategy("diloco", options, inner, context.exchange)->load(state);
      FAIL() << "a state of another final_sync was taken";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(),
                  ::testing::StartsWith("outer.final_sync = drain: the checkpoint was written with "
                                        "full"));
    }
  });
}

}  // namespace
}  // namespace isthmus::this_file
