// SPDX-License-Identifier: Apache-2.0
// delayed, eager, co2: how stale, what is reported, how they end, what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::Drift;
using testing_support::QuadraticLoop;
using testing_support::run_family;
using testing_support::small_model;

// beta = 0, alpha = 1, Lambda = 1, drift d a round: x_t falls by d a round from round 1 on.
TEST(RoundBehind, IsStaleByExactlyOneRound) {
  for (const std::string method : {"co2", "delayed"}) {
    run_in_process(2, [&](WorkerContext& context) {
      Drift inner(0.5f);
      const auto strategy = make_outer_strategy(method, {.H = 4, .lr = 1.0, .momentum = 0.0}, inner,
                                                context.exchange);
      for (int round = 0; round < 6; ++round) {
        for (int h = 0; h < 4; ++h) (void)strategy->step();
        EXPECT_EQ(strategy->values(0)[0], -2.0f * static_cast<float>(round)) << method;
      }
      (void)strategy->finish();
      EXPECT_EQ(strategy->values(0)[0], -12.0f) << method << ": no step is lost";
    });
  }
}

TEST(RoundBehind, RoundsAreReportedWhereTheyAreApplied) {
  run_family({.workers = 2,
              .steps = 12,
              .method = "delayed",
              .outer = {.H = 4},
              .loop = small_model,
              .after_step = [](int, const StepReport& report, OuterStrategy&, QuadraticLoop&) {
                const std::int64_t t = report.step.value();
                ASSERT_EQ(report.rounds.size(), t == 8 || t == 12 ? 1u : 0u) << t;
                for (const RoundReport& round : report.rounds) {
                  EXPECT_EQ(round.applied, report.step);
                  EXPECT_EQ(round.sent, StepIndex(t - 4));
                  EXPECT_EQ(round.members, 2);
                  EXPECT_TRUE(round.counted);
                  EXPECT_EQ(round.payload_bytes, 11098u * 4);
                }
              }});
}

// 10 steps of H = 4: two rounds and half of a third.
TEST(FinalSync, OfMethodsOneRoundBehind) {
  const auto run = [](const std::string& method, FinalSync final_sync, int steps) {
    return run_family({.workers = 2,
                       .steps = steps,
                       .method = method,
                       .outer = {.H = 4, .lr = 0.5, .momentum = 0.5, .final_sync = final_sync},
                       .loop = small_model});
  };
  for (const std::string method : {"delayed", "co2"}) {
    EXPECT_EQ(run(method, FinalSync::kNone, 10), run(method, FinalSync::kNone, 8));
    EXPECT_EQ(run(method, FinalSync::kDrain, 10), run(method, FinalSync::kDrain, 8))
        << method << ": a partial window is not sent";
    EXPECT_EQ(run(method, FinalSync::kFull, 8), run(method, FinalSync::kDrain, 8)) << method;
    EXPECT_NE(run(method, FinalSync::kFull, 10), run(method, FinalSync::kDrain, 10)) << method;
    EXPECT_NE(run(method, FinalSync::kNone, 8), run(method, FinalSync::kDrain, 8)) << method;
  }
  EXPECT_EQ(run("eager", FinalSync::kDrain, 10), run("eager", FinalSync::kNone, 8));
  EXPECT_NE(run("eager", FinalSync::kFull, 10), run("eager", FinalSync::kNone, 10));
  EXPECT_NE(run("eager", FinalSync::kFull, 8), run("eager", FinalSync::kDrain, 8));
}

TEST(RoundBehind, OptionsThatDoNotFitAreRefused) {
  const auto refusal = [](const std::string& method, const OuterOptions& options) {
    std::string text;
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop inner(small_model(0));
      try {
        (void)make_outer_strategy(method, options, inner, context.exchange);
      } catch (const ConfigError& error) {
        text = error.what();
      }
    });
    return text;
  };
  using ::testing::StartsWith;
  EXPECT_THAT(refusal("delayed", {.H = 4, .overlap = 2}),
              StartsWith("outer.overlap = 2: method delayed does not use it"));
  EXPECT_THAT(refusal("eager", {.H = 4, .fragments = 2}), StartsWith("outer.fragments = 2"));
  EXPECT_THAT(refusal("co2", {.H = 4, .nesterov = true}), StartsWith("outer.nesterov = true"));
  EXPECT_THAT(refusal("delayed", {.H = 4, .momentum_clip = 1.0}),
              StartsWith("outer.momentum_clip = 1: method delayed"));
  EXPECT_THAT(refusal("delayed", {.H = 4, .staleness_penalty = StalenessPenalty::kGapAware}),
              StartsWith("outer.staleness_penalty = gap-aware: method delayed"));
  EXPECT_THAT(refusal("co2", {.H = 4, .momentum_clip = 0.0}),
              StartsWith("outer.momentum_clip = 0: must be > 0"));
  EXPECT_THAT(refusal("co2", {.H = 4,
                              .staleness_penalty = StalenessPenalty::kConstant,
                              .staleness_constant = 0.5}),
              StartsWith("outer.staleness_constant = 0.5: must be >= 1"));
  EXPECT_THAT(refusal("co2", {.H = 4, .staleness_constant = 2}),
              StartsWith("outer.staleness_constant = 2: must be absent unless"));
  EXPECT_THAT(refusal("co2", {.H = 4, .carry = LostContribution::kStay}),
              StartsWith("outer.carry = stay: method co2"));
  EXPECT_THAT(refusal("diloco", {.H = 4, .outlier = 0.5}), StartsWith("outer.outlier = 0.5"));
}

}  // namespace
}  // namespace isthmus::this_file
