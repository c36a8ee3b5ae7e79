// SPDX-License-Identifier: Apache-2.0
// sparseloco: bytes, mass, ties, what is lost, and what error feedback is for.
#include "outer/methods/sparseloco.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "outer/losing_exchange.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::anchors_of;
using testing_support::LosingExchange;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;
using testing_support::run_family;
using testing_support::small_model;

constexpr std::size_t kElements = 11098;  // two tiles and a part of one

std::vector<float> normal(std::size_t n, std::uint64_t seed) {
  const Rng rng(seed, Stream::kTestData);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(rng.normal(i));
  return x;
}

// Oracle 19: 64 indices of 12 bits, 64 values of 2, four means of 16, for every 4,096 values.
TEST(SparseLoCo, BytesAreTheFormula) {
  QuadraticLoop::Options options;
  options.tensors = {{0, 20 * 4096}};
  for (const int workers : {2, 3}) {
    run_family({.workers = workers,
                .steps = 6,
                .method = "sparseloco",
                .outer = {.H = 3},
                .loop = [&](int) { return options; },
                .after_step =
                    [&](int, const StepReport& report, OuterStrategy&, QuadraticLoop&) {
                      ASSERT_EQ(report.rounds.size(), report.step.value() % 3 == 0 ? 1u : 0u);
                      for (const RoundReport& round : report.rounds) {
                        const auto peers = static_cast<std::uint64_t>(workers - 1);
                        EXPECT_EQ(round.payload_bytes, peers * 20 * (896 + 64) / 8);
                        EXPECT_EQ(round.members, workers);
                      }
                    }});
  }
}

// One worker and lr 1: what was sent is how far the anchor has moved. With decay 1 that and the
// residual are all that was ever trained.
TEST(SparseLoCo, WhatIsSentAndWhatIsHeldBackIsAllOfIt) {
  std::vector<double> trained(kElements);
  run_in_process(1, [&](WorkerContext& context) {
    QuadraticLoop inner(small_model(1));
    const std::vector<float> start = inner.all();
    const auto strategy =
        make_outer_strategy("sparseloco", {.H = 1, .error_decay = 1}, inner, context.exchange);
    // A twin takes the same inner steps from the same points and keeps what they did.
    QuadraticLoop twin(small_model(1));
    for (int t = 1; t <= 60; ++t) {
      const std::vector<float> before = inner.all();
      twin.set(before);
      (void)twin.train_step(StepIndex(t));
      const std::vector<float> after = twin.all();
      for (std::size_t i = 0; i < kElements; ++i) {
        trained[i] += static_cast<double>(before[i]) - static_cast<double>(after[i]);
      }
      (void)strategy->step();
    }
    MemoryState state;
    strategy->save(state);
    std::vector<float> residual(kElements);
    state.tensor("residual/0", std::span<float>(residual));
    const std::vector<float> anchors = anchors_of(*strategy, inner);
    double held = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const double sent = static_cast<double>(start[i]) - static_cast<double>(anchors[i]);
      // Values up to 200, of which 60 steps of p, e and anchor round a few: 60 * 3 * 2^-24 * 256.
      EXPECT_NEAR(sent + static_cast<double>(residual[i]), trained[i], 3e-3) << i;
      held += std::fabs(static_cast<double>(residual[i]));
    }
    EXPECT_GT(held, 100);  // the balance is not that of a residual of zero
  });
}

TEST(SparseLoCo, AllWorkersHoldTheSameAnchorsAndStartFromThem) {
  for (const int workers : {1, 2, 3, 5}) {
    std::vector<std::vector<float>> anchors(static_cast<std::size_t>(workers));
    std::vector<std::vector<float>> local(static_cast<std::size_t>(workers));
    run_family({.workers = workers,
                .steps = 12,
                .method = "sparseloco",
                .outer = {.H = 4},
                .loop = small_model,
                .after_step = [&](int worker, const StepReport&, OuterStrategy& strategy,
                                  QuadraticLoop& loop) {
                  anchors[static_cast<std::size_t>(worker)] = anchors_of(strategy, loop);
                  local[static_cast<std::size_t>(worker)] = loop.all();
                }});
    for (const std::vector<float>& each : anchors) EXPECT_EQ(each, anchors[0]) << workers;
    for (const std::vector<float>& each : local) EXPECT_EQ(each, anchors[0]) << workers;
  }
}

// Equal movements everywhere: of each tile the first 64 move, then, their mass being gone, the
// next.
TEST(SparseLoCo, OfEqualMagnitudesTheLowestIndicesGoFirst) {
  QuadraticLoop::Options options;
  options.tensors = {{0, 8192}};
  run_in_process(1, [&](WorkerContext& context) {
    QuadraticLoop inner(options);
    const std::vector<float> ones(8192, 1.0f);
    inner.set(ones);
    const auto strategy =
        make_outer_strategy("sparseloco", {.H = 1, .error_decay = 1}, inner, context.exchange);
    (void)strategy->step();
    const std::vector<float> first = anchors_of(*strategy, inner);
    (void)strategy->step();
    const std::vector<float> second = anchors_of(*strategy, inner);
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i] != 1.0f, i % 4096 < 64) << i;
      EXPECT_EQ(second[i] != first[i], i % 4096 >= 64 && i % 4096 < 128) << i;
    }
  });
}

// A contribution that was not counted is in the residual again: with one worker, everything stays
// as if the round had not been sent, its work included.
TEST(SparseLoCo, WhatWasNotCountedIsSentLater) {
  const auto run = [](const std::set<std::int64_t>& lost, const std::string& codec) {
    std::array<std::vector<float>, 2> residuals;
    std::vector<float> anchors;
    run_in_process(2, [&](WorkerContext& context) {
      const auto w = static_cast<std::size_t>(context.rank.value());
      LosingExchange exchange(context.exchange, w == 1 ? lost : std::set<std::int64_t>{});
      QuadraticLoop inner(small_model(context.rank.value()));
      const auto strategy = make_outer_strategy(
          "sparseloco", {.H = 2, .codec = codec, .error_decay = 1}, inner, exchange);
      for (int t = 1; t <= 2; ++t) (void)strategy->step();
      MemoryState state;
      strategy->save(state);
      residuals[w].resize(kElements);
      if (codec.ends_with("ef")) state.tensor("residual/0", std::span<float>(residuals[w]));
      if (w == 1) {
        anchors = anchors_of(*strategy, inner);
        EXPECT_EQ(inner.all(), anchors);
      }
    });
    return std::pair(residuals, anchors);
  };
  const auto [counted, anchors] = run({}, "topk:64:value=2bit:ef");
  const auto [lost, without] = run({2}, "topk:64:value=2bit:ef");
  EXPECT_EQ(lost[0], counted[0]);
  // Delta of worker 1: two steps of x - c = .9 (x - c) and noise, all of it held.
  QuadraticLoop twin(small_model(1));
  const std::vector<float> start = twin.all();
  for (int t = 1; t <= 2; ++t) (void)twin.train_step(StepIndex(t));
  const std::vector<float> end = twin.all();
  for (std::size_t i = 0; i < kElements; ++i) {
    EXPECT_NEAR(lost[1][i], start[i] - end[i], 2e-5) << i;
  }
  EXPECT_NE(lost[1], counted[1]);
  EXPECT_NE(without, anchors);
}

TEST(SparseLoCo, AWindowThatIsNotFiniteIsGivenUpAndReachesNobody) {
  const std::vector<float> result = run_family(
      {.workers = 2,
       .steps = 12,
       .method = "sparseloco",
       .outer = {.H = 3},
       .loop =
           [](int worker) {
             QuadraticLoop::Options options = small_model(worker);
             options.poison = [](std::span<float> x) {
               x[5] = std::numeric_limits<float>::quiet_NaN();
             };
             options.poisoned_step = worker == 1 ? 5 : 0;
             return options;
           },
       .after_step =
           [](int worker, const StepReport& report, OuterStrategy&, QuadraticLoop& loop) {
             if (report.step == StepIndex(6)) {
               EXPECT_EQ(report.rounds.at(0).members, 1);
               EXPECT_EQ(report.rounds.at(0).counted, worker == 0);
             }
             if (report.step == StepIndex(12)) {
               EXPECT_EQ(loop.resets(), worker == 1 ? 1 : 0);
             }
           }});
  for (const float value : result) ASSERT_TRUE(std::isfinite(value));
}

/// SGD on f = 1/2 |x - c|^2, a centre for each element.
class Pulled final : public InnerLoop {
 public:
  explicit Pulled(std::vector<float> center) : center_(std::move(center)), x_(center_.size()) {
    const auto size = static_cast<std::int64_t>(x_.size());
    parameters_.push_back(
        {.name = "x", .layer = 0, .shape = {size}, .elements = {0, size}, .values = x_});
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex) override {
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] -= 0.002f * (x_[i] - center_[i]);
    return {};
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0.002; }

 private:
  std::vector<float> center_;
  std::vector<float> x_;
  std::vector<Parameter> parameters_;
};

// A tile in which the workers pull 256 values apart, for ever and to no avail, and agree on where
// the others belong, about 1 away.
std::vector<float> end_of(const std::string& method, const OuterOptions& outer) {
  std::vector<float> anchors;
  run_in_process(2, [&](WorkerContext& context) {
    std::vector<float> center = normal(4096, 11);
    for (std::size_t i = 0; i < 256; ++i)
      center[16 * i] = context.rank == WorkerId(0) ? 0.2f : -0.2f;
    Pulled inner(center);
    const auto strategy = make_outer_strategy(method, outer, inner, context.exchange);
    for (int t = 0; t < 10000; ++t) (void)strategy->step();
    if (context.rank == WorkerId(0)) anchors = anchors_of(*strategy, inner);
  });
  return anchors;
}

// Distance of the anchors from those of diloco with the same outer step, as a share of the way.
// With feedback a value weighs up to 1 / (1 - decay) = 20 of its pulls, so it moves until its pull
// is a twentieth of the useless ones of 0.2; without, until it is as large as they. Measured 0.033
// and 0.51.
TEST(SparseLoCo, ArrivesWhereDilocoDoesAndWithoutErrorFeedbackDoesNot) {
  const std::vector<float> target =
      end_of("diloco", {.H = 5, .lr = 1, .momentum = 0, .nesterov = false});
  const auto distance = [&](const std::string& codec) {
    const std::vector<float> ours = end_of("sparseloco", {.H = 5, .codec = codec});
    double error = 0;
    double way = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      error += std::pow(static_cast<double>(ours[i] - target[i]), 2);
      way += std::pow(static_cast<double>(target[i]), 2);
    }
    return std::sqrt(error / way);
  };
  const double with = distance("topk:64:value=2bit:ef");
  const double without = distance("topk:64:value=2bit");
  EXPECT_LT(with, 0.05) << "without " << without;
  EXPECT_GT(without, 0.25) << "with " << with;
}

TEST(SparseLoCo, ResumedItIsTheSameBitForBit) {
  for (const std::string codec : {"topk:64:value=2bit:ef", "int8:256"}) {
    const OuterOptions outer{.H = 3, .codec = codec, .final_sync = FinalSync::kFull};
    const auto run = [&](int stop, std::array<MemoryState, 2>* saved,
                         std::array<std::vector<float>, 2>* local, bool resume) {
      std::array<std::vector<float>, 2> anchors;
      run_in_process(2, [&](WorkerContext& context) {
        const auto w = static_cast<std::size_t>(context.rank.value());
        QuadraticLoop inner(small_model(context.rank.value()));
        const auto strategy = make_outer_strategy("sparseloco", outer, inner, context.exchange);
        if (resume) {
          inner.set((*local)[w]);
          strategy->load((*saved)[w]);
        }
        while (strategy->steps() < StepIndex(stop)) (void)strategy->step();
        if (!resume && saved != nullptr) {
          strategy->save((*saved)[w]);
          (*local)[w] = inner.all();
          return;
        }
        (void)strategy->finish();
        anchors[w] = anchors_of(*strategy, inner);
      });
      return anchors;
    };
    const auto expected = run(20, nullptr, nullptr, false);
    for (const int stop : {1, 3, 8, 18}) {
      std::array<MemoryState, 2> saved;
      std::array<std::vector<float>, 2> local;
      (void)run(stop, &saved, &local, false);
      EXPECT_EQ(run(20, &saved, &local, true), expected) << codec << ", stopped after " << stop;
    }
  }
}

TEST(SparseLoCo, BadKeysAreRefusedByName) {
  const auto refusal = [](const OuterOptions& outer) {
    std::string text;
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop inner(small_model(0));
      try {
        (void)make_outer_strategy("sparseloco", outer, inner, context.exchange);
      } catch (const ConfigError& error) {
        text = error.what();
      }
    });
    return text;
  };
  EXPECT_THAT(refusal({.H = 2, .error_decay = 0}),
              ::testing::StartsWith("outer.error_decay = 0: must be in 0 < error_decay <= 1"));
  EXPECT_THAT(refusal({.H = 2, .momentum = 0.9}),
              ::testing::StartsWith("outer.momentum = 0.9: method sparseloco does not use it"));
  EXPECT_THAT(refusal({.H = 2, .carry = LostContribution::kRollback}),
              ::testing::StartsWith("outer.carry = rollback"));
}

}  // namespace
}  // namespace isthmus::this_file
