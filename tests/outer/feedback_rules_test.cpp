// SPDX-License-Identifier: Apache-2.0
// Error feedback where contributions are lost, dropped or not finite: what has been applied plus
// the residual is the sum of the outer gradients that were counted, whatever became of the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "isthmus/errors.h"
#include "outer/adam_loop.h"
#include "outer/losing_exchange.h"
#include "outer/parts/compressed_mean.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::AdamLoop;
using testing_support::Drift;
using testing_support::LosingExchange;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

constexpr std::size_t kValues = 64;
constexpr const char* kLossy = "topk:8:value=int8:ef";  // most of a window stays in the residual

std::vector<float> rates() {
  std::vector<float> rates(kValues);
  for (std::size_t i = 0; i < kValues; ++i) rates[i] = 1 + static_cast<float>(i * 37 % 64) / 64;
  return rates;
}

OuterOptions plain_average(std::int64_t overlap, LostContribution carry) {
  OuterOptions outer{.H = 4, .lr = 1.0, .momentum = 0.0, .overlap = overlap, .alpha = 0.0};
  outer.codec = kLossy;
  outer.carry = carry;
  return outer;
}

/// Steps of drift in what was applied and in the residual together, value by value.
std::vector<float> steps_counted(const OuterStrategy& strategy) {
  MemoryState state;
  strategy.save(state);
  std::vector<float> residual(kValues);
  state.tensor("residual/0", std::span(residual));
  std::vector<float> steps(kValues);
  for (std::size_t i = 0; i < kValues; ++i) {
    steps[i] = (-strategy.values(0)[i] + residual[i]) / rates()[i];
  }
  return steps;
}

struct LostCase {
  std::int64_t overlap;
  LostContribution carry;
  float counted;  // windows of sends 4, 12 and 16; that of 8 is lost
};

class FeedbackAndLoss : public ::testing::TestWithParam<LostCase> {};

// Sent after steps 4, 8, 12 and 16 and applied `overlap` later, when local values return to the
// anchor. Carried: 4 + 8 + 4, or 4 + 6 + 2 with two steps of each window discarded by alpha 0.
TEST_P(FeedbackAndLoss, AddsUpToTheWindowsThatWereCounted) {
  const LostCase& each = GetParam();
  run_in_process(1, [&](WorkerContext& context) {
    Drift inner(rates());
    LosingExchange exchange(context.exchange, {8});
    const auto strategy = make_outer_strategy(
        "streaming-diloco", plain_average(each.overlap, each.carry), inner, exchange);
    for (int t = 1; t <= 18; ++t) (void)strategy->step();
    EXPECT_THAT(steps_counted(*strategy),
                ::testing::Each(::testing::FloatNear(each.counted, 1e-5f)));
  });
}
INSTANTIATE_TEST_SUITE_P(Rules, FeedbackAndLoss,
                         ::testing::Values(LostCase{0, LostContribution::kCarry, 16},
                                           LostCase{0, LostContribution::kStay, 16},
                                           LostCase{0, LostContribution::kRollback, 12},
                                           LostCase{2, LostContribution::kCarry, 12},
                                           LostCase{2, LostContribution::kStay, 12},
                                           LostCase{2, LostContribution::kRollback, 8}));

// With another worker whose contributions move the anchor: what this one has sent plus its residual
// is what it was trained on. Its lost window is rebased on the new anchor.
TEST(FeedbackAndLoss, OfOneAmongSeveralIsCarriedOverAMovedAnchor) {
  for (const std::int64_t overlap : {0, 2}) {
    run_in_process(2, [&](WorkerContext& context) {
      const bool loses = context.rank == WorkerId(1);
      Drift inner(rates());
      LosingExchange exchange(context.exchange,
                              loses ? std::set<std::int64_t>{8} : std::set<std::int64_t>{});
      const auto strategy = make_outer_strategy(
          "streaming-diloco", plain_average(overlap, LostContribution::kCarry), inner, exchange);
      for (int t = 1; t <= 18; ++t) (void)strategy->step();
      MemoryState state;
      strategy->save(state);
      std::vector<float> steps(kValues);
      state.tensor("residual/0", std::span(steps));
      for (std::size_t i = 0; i < kValues; ++i) {
        steps[i] = (steps[i] + exchange.sent[i]) / rates()[i];
      }
      const float whole = overlap == 0 ? 16.0f : (loses ? 12.0f : 10.0f);
      EXPECT_THAT(steps, ::testing::Each(::testing::FloatNear(whole, 1e-4f)))
          << context.rank.value() << " overlap " << overlap;
    });
  }
}

// Fragments sent in the step in which another one is found not to be finite have nothing to give:
// their residual must not leave with what is not sent.
TEST(Poison, LeavesTheResidualOfOtherFragmentsAlone) {
  run_in_process(1, [](WorkerContext& context) {
    QuadraticLoop::Options options;
    options.tensors = {{0, kValues}, {1, kValues}};
    options.poisoned_step = 7;
    options.poison = [](std::span<float> values) { values[0] = std::nanf(""); };
    QuadraticLoop inner(options);
    OuterOptions outer{.H = 4, .fragments = 2, .offsets = OffsetsZero{}};
    outer.codec = kLossy;
    const auto strategy = make_outer_strategy("streaming-diloco", outer, inner, context.exchange);
    std::vector<float> before(kValues), after(kValues);
    for (int t = 1; t <= 8; ++t) {
      (void)strategy->step();
      MemoryState state;
      strategy->save(state);
      state.tensor("residual/1", std::span(t <= 4 ? before : after));
    }
    EXPECT_THAT(before, ::testing::Contains(::testing::Ne(0.0f)));
    EXPECT_EQ(after, before);
  });
}

// A value beyond the codec's range makes the mean infinite: the round is lost for all, and what is
// taken back of it must not poison the next ones.
TEST(FeedbackAndLoss, AnOverflowIsOverWithItsRound) {
  for (const std::string method : {"delayed", "eager", "co2"}) {
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop::Options options;
      options.tensors = {{0, 8}};
      options.poisoned_step = 3;
      options.poison = [](std::span<float> values) { values[0] += 1e5f; };
      QuadraticLoop inner(options);
      OuterOptions outer{.H = 4, .lr = 1.0, .momentum = 0.0};
      outer.codec = "fp16:ef";
      const auto strategy = make_outer_strategy(method, outer, inner, context.exchange);
      int counted = 0;
      for (int t = 1; t <= 24; ++t) {
        for (const RoundReport& round : strategy->step().rounds) counted += round.counted ? 1 : 0;
      }
      EXPECT_EQ(counted, 4) << method;  // of five that have been settled
      EXPECT_TRUE(std::isfinite(strategy->values(0)[0])) << method;
    });
  }
}

// Another number of workers: what was in flight is dropped, its work still in the local values.
TEST(FeedbackAndLoss, ADroppedSyncIsNotInTheResidualToo) {
  const OuterOptions outer = plain_average(2, LostContribution::kCarry);
  MemoryState state;
  std::vector<float> local;
  run_in_process(1, [&](WorkerContext& context) {
    Drift inner(rates());
    const auto strategy = make_outer_strategy("streaming-diloco", outer, inner, context.exchange);
    for (int t = 1; t <= 9; ++t) (void)strategy->step();
    strategy->save(state);
    local.assign(inner.parameters()[0].values.begin(), inner.parameters()[0].values.end());
  });
  for (const bool dropped : {false, true}) {
    if (dropped) state.overwrite("in_flight", std::int64_t{0});
    run_in_process(1, [&](WorkerContext& context) {
      Drift inner(rates());
      const auto strategy = make_outer_strategy("streaming-diloco", outer, inner, context.exchange);
      inner.set(local);
      strategy->load(state);
      for (int t = 10; t <= 14; ++t) (void)strategy->step();
      // 4 + 2 + 2 steps, or 4 + 6 where the second window went out again with the third.
      EXPECT_THAT(steps_counted(*strategy),
                  ::testing::Each(::testing::FloatNear(dropped ? 10 : 8, 1e-5f)));
    });
  }
}

// One round behind, the lost window goes back into the residual; the next one that is not fit does
// not take it along.
TEST(FeedbackAndLoss, ACarriedWindowOutlivesOneThatIsNotFit) {
  for (const std::string method : {"delayed", "co2"}) {
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop::Options options;
      options.tensors = {{0, 8}};
      options.lr = 0.01f;
      options.poisoned_step = 10;
      options.poison = [](std::span<float> values) { values[0] = std::nanf(""); };
      QuadraticLoop inner(options);
      OuterOptions outer{.H = 4, .lr = 1.0, .momentum = 0.0};
      outer.codec = "bf16:ef";
      LosingExchange exchange(context.exchange, {8});
      const auto strategy = make_outer_strategy(method, outer, inner, exchange);
      for (int t = 1; t <= 12; ++t) (void)strategy->step();
      MemoryState state;
      strategy->save(state);
      std::vector<float> residual(8);
      state.tensor("residual/0", std::span(residual));
      // Two windows of four steps begin at 2: the second, which was lost, is near 2 (1 - 0.99^4).
      EXPECT_NEAR(residual[0], 2 * (1 - std::pow(0.99f, 4.0f)), 1e-2f) << method;
    });
  }
}

// What other fragments were trained on is gone with the local values.
TEST(Poison, GivesUpTheWindowsOfAllFragments) {
  std::vector<double> weights;
  run_in_process(1, [&](WorkerContext& context) {
    QuadraticLoop::Options options;
    options.tensors = {{0, 4}, {1, 4}};
    options.tokens = 10;
    options.poisoned_step = 3;
    options.poison = [](std::span<float> values) { values[0] = std::nanf(""); };
    QuadraticLoop inner(options);
    LosingExchange exchange(context.exchange, {});
    const auto strategy =
        make_outer_strategy("streaming-diloco", {.H = 4, .fragments = 2}, inner, exchange);
    for (int t = 1; t <= 8; ++t) (void)strategy->step();
    weights = exchange.weights;
  });
  // Fragment 1 after steps 2 and 6, fragment 0 after steps 4 and 8.
  EXPECT_EQ(weights, (std::vector<double>{20, 0, 20, 40}));
}

TEST(CompressedMean, AMeanThatIsNotFiniteIsTakenByNobodyAndOwesNothing) {
  run_in_process(3, [](WorkerContext& context) {
    const std::shared_ptr<const Codec> codec = make_codec("bf16:ef");
    outer::HostWorkerEnd end({3, 3}, codec);
    end.set_fill([](std::size_t bucket, std::size_t, std::span<float> tile) {
      std::ranges::fill(tile, bucket == 0 ? 3.01e38f : 1.001f);
    });
    outer::CompressedMean mean({3, 3}, {.codec = codec, .patience = std::chrono::minutes(1)},
                               context.exchange, end);
    std::vector<std::size_t> taken;
    const auto reports =
        mean.run(StepIndex(1), true, true,
                 [&](std::size_t bucket, std::span<const float>) { taken.push_back(bucket); });
    EXPECT_EQ(reports.size(), 2u);
    EXPECT_EQ(taken, std::vector<std::size_t>{1});
    EXPECT_THAT(mean.residual(0), ::testing::Each(0.0f));
    EXPECT_THAT(mean.owner_residual(0), ::testing::IsEmpty());
    EXPECT_THAT(mean.residual(1), ::testing::Each(::testing::Ne(0.0f)));
  });
}

// 01-adam: a sync to which nobody contributes leaves all workers where the last one left them.
TEST(ZeroOneAdam, ASyncOfNobodyReturnsAllToTheAnchor) {
  std::vector<std::vector<float>> after(2), before(2);
  run_in_process(2, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    AdamLoop::Options options;
    options.worker = context.rank.value();
    AdamLoop inner(options);
    LosingExchange exchange(context.exchange, {12});
    OuterOptions outer;
    outer.zero_one_adam = {.var_freeze_step = 4, .local_step_scaler = 2, .local_step_clipper = 4};
    const auto strategy = make_outer_strategy("01-adam", outer, inner, exchange);
    for (int t = 1; t <= 8; ++t) (void)strategy->step();
    before[w] = inner.all();
    for (int t = 9; t <= 12; ++t) (void)strategy->step();
    after[w] = inner.all();
    for (const std::size_t i : {0u, 1u}) {
      EXPECT_THAT(inner.adam_moments(i).first, ::testing::Each(0.0f));
    }
    for (int t = 13; t <= 24; ++t) (void)strategy->step();
    (void)strategy->finish();
  });
  EXPECT_EQ(before[0], before[1]);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], after[0]);
}

/// What loading `state` with `damage` done to it says.
std::string refusal(const std::function<void(MemoryState&)>& damage) {
  std::string text;
  MemoryState state;
  const OuterOptions outer{.H = 4, .overlap = 2};
  run_in_process(1, [&](WorkerContext& context) {
    Drift inner(rates());
    const auto strategy = make_outer_strategy("streaming-diloco", outer, inner, context.exchange);
    for (int t = 1; t <= 5; ++t) (void)strategy->step();
    strategy->save(state);
  });
  damage(state);
  run_in_process(1, [&](WorkerContext& context) {
    Drift inner(rates());
    const auto again = make_outer_strategy("streaming-diloco", outer, inner, context.exchange);
    try {
      again->load(state);
    } catch (const Error& error) {
      text = error.what();
    }
  });
  return text;
}

TEST(Checkpoint, NumbersThatNoRunSavesAreRefusedByName) {
  const auto integer = [](const std::string& name, std::int64_t value) {
    return refusal([&](MemoryState& state) { state.overwrite(name, value); });
  };
  EXPECT_THAT(integer("window/0/tokens", -1), ::testing::HasSubstr("window/0/tokens is -1"));
  EXPECT_THAT(integer("last_sent/0", 6), ::testing::HasSubstr("last_sent/0 is 6; 0 to 5"));
  EXPECT_THAT(integer("in_flight", -3), ::testing::HasSubstr("in_flight is -3"));
  EXPECT_THAT(integer("in_flight/0/fragment", 1), ::testing::HasSubstr("fragment is 1; 0 to 0"));
  EXPECT_THAT(integer("in_flight", 2), ::testing::HasSubstr("in_flight/1/fragment is absent"));
  EXPECT_THAT(integer("in_flight/0/sent", 9), ::testing::HasSubstr("sent is 9; 3 to 5"));
  EXPECT_THAT(refusal([](MemoryState& state) { state.overwrite("in_flight/0/weight", -1.0); }),
              ::testing::HasSubstr("weight = -1: must be 0 or in [1e-30, 1e+30]"));
  EXPECT_THAT(refusal([](MemoryState& state) {
                state.overwrite("norms/0", std::vector<float>(16, std::nanf("")));
              }),
              ::testing::HasSubstr("norms/0 holds nan"));
}

}  // namespace
}  // namespace isthmus::this_file
