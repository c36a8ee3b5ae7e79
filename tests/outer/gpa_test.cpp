// SPDX-License-Identifier: Apache-2.0
// Generalized primal averaging against its authors' form, and at the edges of its two constants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isthmus/errors.h"
#include "outer/toy_loops.h"
#include "transport/exchange/run_in_process.h"

namespace isthmus::this_file {
namespace {

using testing_support::anchors_of;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

// f = 1/2 (x - 1)^2 from 2, SGD of rate 0.1.
constexpr double kCenter = 1, kRate = 0.1;
// Each step rounds x, y and z once, to half a unit in the last place of values of at most 2.
constexpr int kSteps = 40;
constexpr double kRoundings = kSteps * 3 * 0x1p-24;

QuadraticLoop::Options parabola() {
  QuadraticLoop::Options options;
  options.center = kCenter;
  return options;
}
QuadraticLoop::Options small_model() {
  QuadraticLoop::Options options;
  options.tensors = {{kNoLayer, 500}, {0, 300}, {1, 2}, {2, 64}};
  options.center = 0.25f;
  options.noise = 0.5f;
  return options;
}

/// What is evaluated, and what the inner loop holds, after each step.
struct Sequences {
  std::vector<float> average, trained;
};
Sequences sequences(const OuterOptions& outer) {
  Sequences found;
  run_in_process(1, [&](WorkerContext& context) {
    QuadraticLoop inner(parabola());
    const auto strategy = make_outer_strategy("gpa", outer, inner, context.exchange);
    for (int t = 1; t <= kSteps; ++t) {
      EXPECT_TRUE(strategy->step().rounds.empty());
      found.average.push_back(strategy->values(0)[0]);
      found.trained.push_back(inner.first());
    }
    EXPECT_TRUE(strategy->finish().empty());
  });
  return found;
}

// gpa_adamw.py keeps y and z alone:
//   y <- lerp(y, z, c) + lr (mu_y (1 - c) - 1) g,  z <- z - lr g,  c = 1 - mu_x;
//   x = lerp(y, z, 1 - 1 / mu_y)
TEST(Gpa, IsTheAuthorsFormOfIt) {
  for (const OuterOptions& outer : {OuterOptions{}, OuterOptions{.mu_x = 0.9, .mu_y = 0.9},
                                    OuterOptions{.mu_x = 0.5, .mu_y = 1}}) {
    const Sequences found = sequences(outer);
    double y = 2, z = 2;
    const double c = 1 - outer.mu_x;
    for (std::size_t t = 0; t < kSteps; ++t) {
      const double g = y - kCenter;
      y += c * (z - y);
      y += kRate * (outer.mu_y * (1 - c) - 1) * g;
      z -= kRate * g;
      const double x = y + (1 - 1 / outer.mu_y) * (z - y);
      EXPECT_NEAR(found.trained[t], y, kRoundings) << "mu_x " << outer.mu_x << " step " << t + 1;
      EXPECT_NEAR(found.average[t], x, kRoundings) << "mu_x " << outer.mu_x << " step " << t + 1;
    }
  }
}

TEST(Gpa, WithoutAnAverageIsPlainTraining) {
  const Sequences found = sequences({.mu_x = 0, .mu_y = 0.3});
  QuadraticLoop plain(parabola());
  for (std::size_t t = 0; t < kSteps; ++t) {
    (void)plain.train_step(StepIndex(static_cast<std::int64_t>(t) + 1));
    EXPECT_EQ(found.trained[t], plain.first()) << t + 1;
    EXPECT_EQ(found.average[t], plain.first()) << t + 1;
  }
}

TEST(Gpa, ResumedIsBitIdentical) {
  constexpr int kLast = 17;
  const auto run = [](int from, MemoryState& state, std::vector<float>& local, int until) {
    std::vector<float> anchors;
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop inner(small_model());
      if (from > 0) inner.set(local);
      const auto strategy = make_outer_strategy("gpa", {.mu_x = 0.9}, inner, context.exchange);
      if (from > 0) strategy->load(state);
      EXPECT_EQ(strategy->steps(), StepIndex(from));
      while (strategy->steps().value() < until) (void)strategy->step();
      state = {};
      strategy->save(state);
      local = inner.all();
      anchors = anchors_of(*strategy, inner);
    });
    return anchors;
  };
  MemoryState state;
  std::vector<float> local;
  const std::vector<float> expected = run(0, state, local, kLast);
  (void)run(0, state, local, 6);
  EXPECT_EQ(run(6, state, local, kLast), expected);
}

TEST(Gpa, ACheckpointOfOtherConstantsIsRefused) {
  run_in_process(1, [](WorkerContext& context) {
    QuadraticLoop inner(small_model());
    const auto with = [&](const OuterOptions& outer) {
      return make_outer_strategy("gpa", outer, inner, context.exchange);
    };
    MemoryState state;
    with({.mu_x = 0.9, .mu_y = 0.7})->save(state);
    with({.mu_x = 0.9, .mu_y = 0.7})->load(state);
    const auto refused = [&](const OuterOptions& outer) -> std::string {
      try {
        with(outer)->load(state);
      } catch (const ConfigError& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_THAT(refused({.mu_x = 0.95, .mu_y = 0.7}),
                ::testing::StartsWith("outer.mu_x = 0.95: the checkpoint was written with 0.9; "));
    EXPECT_THAT(refused({.mu_x = 0.9, .mu_y = 0.8}),
                ::testing::StartsWith("outer.mu_y = 0.8: the checkpoint was written with 0.7; "));
  });
}

TEST(Gpa, GoesOnFromTheAverageWhereItForgetsItsOwnWork) {
  run_in_process(1, [](WorkerContext& context) {
    QuadraticLoop inner(small_model());
    const auto strategy = make_outer_strategy("gpa", {.mu_x = 0.9}, inner, context.exchange);
    for (int t = 1; t <= 5; ++t) (void)strategy->step();
    const std::vector<float> before = anchors_of(*strategy, inner);
    EXPECT_NE(inner.all(), before);
    strategy->forget_own_work();
    EXPECT_EQ(inner.all(), before);
    EXPECT_EQ(anchors_of(*strategy, inner), before);
  });
}

std::string refusal(const OuterOptions& outer, int workers) {
  try {
    run_in_process(workers, [&](WorkerContext& context) {
      QuadraticLoop inner(parabola());
      (void)make_outer_strategy("gpa", outer, inner, context.exchange);
    });
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Gpa, RefusesSeveralWorkersAndConstantsThatAverageNothing) {
  EXPECT_EQ(refusal({}, 1), "");
  EXPECT_THAT(refusal({}, 2), ::testing::StartsWith("outer.method = \"gpa\": trains one worker, "
                                                    "and there are 2; set run.workers = 1"));
  EXPECT_THAT(refusal({.mu_x = 1}, 1), ::testing::StartsWith("outer.mu_x = 1: must be in 0 <="));
  EXPECT_THAT(refusal({.mu_y = 0}, 1), ::testing::StartsWith("outer.mu_y = 0: must be in 0 <"));
  EXPECT_THAT(refusal({.codec = "int8"}, 1), ::testing::HasSubstr("method gpa does not use it"));
}

}  // namespace
}  // namespace isthmus::this_file
