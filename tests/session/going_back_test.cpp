// SPDX-License-Identifier: Apache-2.0
// A worker of three dies, in virtual time, while steps are not committed: the others go back to the
// last committed step, from the state that they have kept, and hold in the end what two workers
// come to that go on from there by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/state/state_bytes.h"
#include "isthmus/errors.h"
#include "outer/adam_loop.h"
#include "session/run/worker_state.h"
#include "sim/run_simulated.h"
#include "transport/exchange/run_in_process.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing_support::AdamLoop;

constexpr int kWorkers = 3;
constexpr std::int64_t kSteps = 26;
constexpr Duration kCompute = 100ms;

struct Case {
  std::string name, method, codec;
};

OuterOptions options_of(const Case& of, std::int64_t every) {
  OuterOptions options{.codec = of.codec, .exchange = ReductionKind::kReduce};
  options.commit_every = every;
  if (of.method == "1bit-adam") options.one_bit_adam.freeze = 10;
  return options;
}

AdamLoop loop_of(int worker) { return AdamLoop({.decay_steps = 40, .worker = worker}); }

struct Played {
  std::vector<std::vector<float>> x{kWorkers};                         // of who lived to the end
  std::vector<std::int64_t> back_from, back_to;                        // of worker 0
  std::vector<std::size_t> taken{std::vector<std::size_t>(kWorkers)};  // steps, repeated ones too
  Duration took{0};
};

/// One-way delay 25 ms. `death`: of worker 2.
Played play(const Case& of, std::int64_t every, std::optional<Duration> death,
            bool takes_back = true) {
  Played played;
  SimulationOptions options{.workers = kWorkers, .seed = 5};
  options.links = uniform_links(kWorkers, {.bits_per_s = 100'000'000, .one_way = 25ms});
  options.exchange = {.elastic = true, .takes_back = takes_back};
  if (death) options.network.faults.crashes = {{.rank = WorkerId(2), .time = TimePoint{} + *death}};
  const SimulationResult result = run_simulated(options, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    AdamLoop inner = loop_of(context.rank.value());
    const OuterOptions outer = options_of(of, every);
    const auto make = [&] {
      return make_outer_strategy(of.method, outer, inner, context.exchange);
    };
    std::unique_ptr<OuterStrategy> strategy = make();
    app::KeptState kept;
    kept.keep(inner, *strategy);
    const auto go_back = [&] {
      const StepIndex step = context.exchange.go_back();
      if (w == 0) played.back_from.push_back(strategy->steps().value() + 1);
      strategy = kept.restore(inner, make);
      kept.keep(inner, *strategy);
      if (w == 0) played.back_to.push_back(strategy->steps().value());
      EXPECT_EQ(strategy->steps(), step);
    };
    while (strategy->steps().value() < kSteps) {
      try {
        context.runtime.compute(kCompute, [] {});
        (void)strategy->step();
        ++played.taken[w];
        if (strategy->steps().value() == kSteps) (void)strategy->finish();
        if (!context.exchange.uncommitted()) kept.keep(inner, *strategy);
      } catch (const TakenBackError&) {
        go_back();
      }
    }
    played.x[w] = inner.all();
  });
  played.took = result.duration;
  return played;
}

/// Three workers up to step `alone_from`, then the first two by themselves.
std::vector<float> oracle(const Case& of, std::int64_t every, std::int64_t alone_from) {
  std::vector<std::vector<std::byte>> states(kWorkers);
  const OuterOptions outer = options_of(of, every);
  run_in_process(kWorkers, [&](WorkerContext& context) {
    AdamLoop inner = loop_of(context.rank.value());
    const auto strategy = make_outer_strategy(of.method, outer, inner, context.exchange);
    for (std::int64_t t = 0; t < alone_from; ++t) (void)strategy->step();
    states[static_cast<std::size_t>(context.rank.value())] =
        write_state(app::worker_snapshot(inner, *strategy, true));
  });
  std::vector<float> x;
  run_in_process(kWorkers - 1, [&](WorkerContext& context) {
    AdamLoop inner = loop_of(context.rank.value());
    const auto state =
        read_state(std::move(states[static_cast<std::size_t>(context.rank.value())]));
    app::restore_worker_parameters(**state, inner);
    const auto strategy = make_outer_strategy(of.method, outer, inner, context.exchange);
    app::restore_worker_state(**state, inner, *strategy);
    while (strategy->steps().value() < kSteps) (void)strategy->step();
    (void)strategy->finish();
    if (context.rank == WorkerId(0)) x = inner.all();
  });
  return x;
}

class GoingBack : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Methods, GoingBack,
                         ::testing::Values(Case{"Ddp", "ddp", "fp32"},
                                           Case{"DdpWithFeedback", "ddp", "int4:ef"},
                                           Case{"OneBitAdam", "1bit-adam", ""}),
                         [](const auto& each) { return each.param.name; });

TEST_P(GoingBack, TheOthersHoldWhatTwoComeToFromTheLastCommittedStep) {
  int repeated = 0;
  for (const Duration death : {150ms, 900ms, 1500ms, 1730ms, 2100ms, 3450ms}) {
    for (const std::int64_t every : {4, 9, 100}) {
      SCOPED_TRACE(::testing::Message() << death.count() << " ns, every:" << every);
      const Played played = play(GetParam(), every, death);
      ASSERT_EQ(played.back_to.size(), 1u);
      EXPECT_EQ(played.back_to[0] % every, 0);
      EXPECT_EQ(played.x[0], played.x[1]);
      EXPECT_EQ(played.x[0], oracle(GetParam(), every, played.back_to[0]));
      EXPECT_EQ(played.taken[0],
                static_cast<std::size_t>(kSteps + played.back_from[0] - 1 - played.back_to[0]));
      repeated += static_cast<int>(played.back_from[0] - 1 - played.back_to[0]);
    }
  }
  EXPECT_GT(repeated, 18);
}

TEST_P(GoingBack, NobodyGoesBackWhereNobodyIsLost) {
  const Played played = play(GetParam(), 5, std::nullopt);
  EXPECT_TRUE(played.back_to.empty());
  EXPECT_EQ(played.taken, std::vector<std::size_t>(kWorkers, kSteps));
  for (const auto& x : played.x) EXPECT_EQ(x, played.x[0]);
}

// A step's round alone is a contribution and a result, 25 ms each; its commit is DONE and COMMIT,
// 25 ms each, and nothing to who coordinates but DONE.
TEST(GoingBackPays, ACommitEverySixteenStepsSparesARoundTripAStep) {
  const Case ddp{"Ddp", "ddp", "fp32"};
  const auto step = [&](const Played& played) {
    return std::chrono::duration<double>(played.took).count() / kSteps;
  };
  const double each = step(play(ddp, 1, std::nullopt, false));
  const double sixteenth = step(play(ddp, 16, std::nullopt));
  RecordProperty("every_1_s", std::to_string(each));
  RecordProperty("every_16_s", std::to_string(sixteenth));
  EXPECT_GT(each - sixteenth, 0.025) << each << " and " << sixteenth;
  EXPECT_LT(each - sixteenth, 0.075) << each << " and " << sixteenth;
}

}  // namespace
}  // namespace isthmus::this_file
