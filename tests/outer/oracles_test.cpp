// SPDX-License-Identifier: Apache-2.0
// Closed forms and equivalences of the DiLoCo family: the oracles of the methods' papers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <mutex>

#include "kernels/outer_step.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::FamilyRun;
using testing_support::QuadraticLoop;
using testing_support::run_family;
using testing_support::small_model;
using testing_support::two_parabolas;

// fp32 against decimals printed with seven digits: a few units in the last place of values near 2.
constexpr float kFewUlps = 2e-6f;

std::vector<float> anchors_by_round(const std::string& method, const OuterOptions& outer,
                                    int workers, int rounds) {
  std::vector<float> anchors;
  run_family({.workers = workers,
              .steps = rounds * static_cast<int>(outer.H),
              .method = method,
              .outer = outer,
              .loop = two_parabolas,
              .after_step = [&](int worker, const StepReport& report, OuterStrategy& strategy,
                                QuadraticLoop&) {
                if (worker == 0 && !report.rounds.empty()) {
                  anchors.push_back(strategy.values(0)[0]);
                }
              }});
  return anchors;
}

void expect_near(const std::vector<float>& values, const std::vector<float>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], kFewUlps) << "value " << i;
  }
}

TEST(Oracles, OneInnerStepAndOuterSgdIsDataParallelSgd) {
  const std::vector<float> expected = {1.7f, 1.43f, 1.187f};
  expect_near(anchors_by_round("ddp", {}, 2, 3), expected);
  expect_near(anchors_by_round("localsgd", {.H = 1}, 2, 3), expected);
}

// Oracle 17, and the formula by hand in fp64: two parabolas are one of centre -1, whose H inner
// steps leave q = 0.9^H of the distance.
TEST(Oracles, DelayedNesterovOfOneRoundIsNesterov) {
  std::vector<float> x = {1, -2, 3.5f}, b = {0.25f, 0, -7};
  std::vector<float> x1 = x, b1 = b, s(3);
  const std::vector<float> d = {0.1f, 0.2f, -0.3f};
  const kernels::OuterStep step{.rule = kernels::OuterStepRule::kNesterov, .eta = 0.7f, .mu = 0.9f};
  for (int round = 0; round < 5; ++round) {
    kernels::outer_step(step, x, d, b);
    kernels::delayed_nesterov_step(step, true, x1, d, b1, s);
  }
  EXPECT_EQ(b1, b);
  EXPECT_EQ(x1, x);
}

TEST(Oracles, DelayedNesterovTakesInTheMeanOfItsRounds) {
  const double eta = 0.7, mu = 0.9, q = std::pow(0.9, 5), every = 3;
  double x = 2, b = 0, s = 0;
  std::vector<float> expected;
  for (int round = 1; round <= 8; ++round) {
    const double d = (1 - q) * (x + 1);
    s += d;
    double move = d / every;
    if (round % 3 == 0) {
      b = mu * b + s / every;
      s = 0;
      move += mu * b;
    }
    x -= eta * move;
    expected.push_back(static_cast<float>(x));
  }
  expect_near(anchors_by_round("diloco", {.H = 5, .momentum_every = 3}, 2, 8), expected);
}

// arXiv:2505.23725 Alg. 1 in its own form, where the momentum takes in the rate:
//   d = mean of x - theta_m after H inner steps;  u <- mu u + eta d;  x <- x - mu u - eta d
// with the published 0.7 and 0.6 as defaults. Two parabolas are one of centre -1; one alone has its
// own centre, 1, and the outer step moves it as well.
TEST(Oracles, MuLoCoIsItsAlgorithmWrittenOutForSeveralWorkersAndForOne) {
  const double eta = 0.7, mu = 0.6, q = std::pow(0.9, 5);
  for (const int workers : {1, 2}) {
    const double center = workers == 1 ? 1 : -1;
    double x = 2, u = 0;
    std::vector<float> expected;
    for (int round = 0; round < 8; ++round) {
      const double d = (1 - q) * (x - center);
      u = mu * u + eta * d;
      x = x - mu * u - eta * d;
      expected.push_back(static_cast<float>(x));
    }
    expect_near(anchors_by_round("muloco", {.H = 5}, workers, 8), expected);
    expect_near(anchors_by_round("diloco", {.H = 5, .lr = eta, .momentum = mu}, workers, 8),
                expected);
  }
}

// Rates by hand: a rise over 10 steps, a fall to a tenth over the last 10 of 40; momentum rises
// over 20 steps and falls to half of itself over the last 20.
TEST(Oracles, OuterRatesRiseAndFallByTheStepOfTheRound) {
  const std::array<double, 8> eta = {.35, .7, .7, .7, .7, .7, .7 * .55, .7 * .1};
  const std::array<double, 8> mu = {.2, .4, .6, .8, .8 * .875, .8 * .75, .8 * .625, .8 * .5};
  const double q = std::pow(0.9, 5);
  double x = 2, b = 0;
  std::vector<float> expected;
  for (std::size_t round = 0; round < eta.size(); ++round) {
    const double d = (1 - q) * (x + 1);
    b = mu[round] * b + d;
    x -= eta[round] * (d + mu[round] * b);
    expected.push_back(static_cast<float>(x));
  }
  OuterOptions outer{.H = 5, .lr = 0.7, .momentum = 0.8};
  outer.lr_ramp = {.warmup = 10, .decay = 10, .floor = 0.1};
  outer.momentum_ramp = {.warmup = 20, .decay = 20, .floor = 0.5};
  outer.run_steps = 40;
  for (const char* const method : {"diloco", "muloco", "streaming-diloco"}) {
    outer.alpha = std::string_view(method) == "diloco" ? std::nullopt : std::optional<double>(0);
    expect_near(anchors_by_round(method, outer, 2, 8), expected);
  }
}

TEST(Oracles, OneInnerStepAndOuterSgdIsDataParallelSgdOnAModel) {
  const auto run = [](const std::string& method) {
    return run_family({.workers = 3, .steps = 20, .method = method, .loop = small_model});
  };
  const std::vector<float> parallel = run("ddp");
  const std::vector<float> local = run("localsgd");
  ASSERT_EQ(parallel.size(), local.size());
  // Each step may differ by one rounding of values below 256.
  constexpr float kOneUlpAStep = 20 * 256 * 0x1p-23f;
  for (std::size_t i = 0; i < parallel.size(); ++i) {
    EXPECT_NEAR(parallel[i], local[i], kOneUlpAStep) << i;
  }
}

TEST(Oracles, NesterovFollowsTheSampleTrajectory) {
  expect_near(anchors_by_round("diloco", {.H = 5, .lr = 0.7, .momentum = 0.9}, 2, 4),
              {.3660551f, -1.0745410f, -1.9780485f, -2.2777438f});
}

TEST(Oracles, HeavyBallFollowsTheSampleTrajectory) {
  expect_near(
      anchors_by_round("diloco", {.H = 5, .lr = 0.7, .momentum = 0.9, .nesterov = false}, 2, 4),
      {1.140029f, -.2473992f, -1.7118228f, -2.8257552f});
}

// M = 1, outer SGD(eta): anchor <- (1 - eta) anchor + eta theta_H; inner x -> c + (1 - lr)^H (x -
// c).
TEST(Oracles, OneWorkerWithOuterSgdIsLookahead) {
  for (const double eta : {0.25, 0.5, 1.0}) {
    std::vector<float> expected;
    double anchor = 2;
    for (int round = 0; round < 6; ++round) {
      const double inner = 1 + std::pow(0.9, 5) * (anchor - 1);
      anchor = (1 - eta) * anchor + eta * inner;
      expected.push_back(static_cast<float>(anchor));
    }
    expect_near(anchors_by_round("diloco", {.H = 5, .lr = eta, .momentum = 0.0}, 1, 6), expected);
  }
}

TEST(Oracles, AlphaOneIsPlainLocalTrainingForAnyOverlap) {
  for (const std::int64_t overlap : {0, 1, 3}) {
    std::array<std::vector<float>, 2> local;
    run_family(
        {.workers = 2,
         .steps = 13,
         .method = "streaming-diloco",
         .outer = {.H = 4, .fragments = 2, .overlap = overlap, .alpha = 1.0},
         .loop = small_model,
         .after_step = [&](int worker, const StepReport&, OuterStrategy&, QuadraticLoop& loop) {
           local[static_cast<std::size_t>(worker)] = loop.all();
         }});
    for (int worker = 0; worker < 2; ++worker) {
      QuadraticLoop alone(small_model(worker));
      for (int t = 1; t <= 13; ++t) {
        (void)alone.train_step(StepIndex(t));
      }
      EXPECT_EQ(local[static_cast<std::size_t>(worker)], alone.all()) << "overlap " << overlap;
    }
  }
}

TEST(Oracles, StreamingWithoutOverlapAndMixingIsDiLoCo) {
  const OuterOptions diloco{.H = 6, .lr = 0.7, .momentum = 0.9};
  for (const std::string codec : {"fp32", "bf16"}) {
    OuterOptions base = diloco;
    base.codec = codec;
    const std::vector<float> expected =
        run_family({.workers = 3, .steps = 24, .outer = base, .loop = small_model});
    OuterOptions one = base;
    one.alpha = 0.0;
    EXPECT_EQ(expected, run_family({.workers = 3,
                                    .steps = 24,
                                    .method = "streaming-diloco",
                                    .outer = one,
                                    .loop = small_model}));
    for (const FragmentPattern pattern :
         {FragmentPattern::kStrided, FragmentPattern::kSequential, FragmentPattern::kBalanced}) {
      OuterOptions many = one;
      many.fragments = 3;
      many.pattern = pattern;
      many.offsets = OffsetsZero{};
      EXPECT_EQ(expected, run_family({.workers = 3,
                                      .steps = 24,
                                      .method = "streaming-diloco",
                                      .outer = many,
                                      .loop = small_model}))
          << codec;
    }
  }
}

TEST(Oracles, IdenticalWorkersFollowOneWorker) {
  const auto same = [](int) { return small_model(0); };
  const OuterOptions outer{.H = 4};
  const std::vector<float> one =
      run_family({.workers = 1, .steps = 12, .outer = outer, .loop = same});
  for (const int workers : {2, 3, 8}) {
    for (const ReductionKind kind : {ReductionKind::kReduce, ReductionKind::kGather}) {
      OuterOptions options = outer;
      options.exchange = kind;
      const std::vector<float> many =
          run_family({.workers = workers, .steps = 12, .outer = options, .loop = same});
      if (workers == 2) {
        EXPECT_EQ(one, many);  // (x + x) / 2 is exact
      }
      // Else M additions and a division, each within half a unit in the last place of a sum below
      // M * 256, over three rounds whose gain is at most 1.33 + 2.2 + 3.
      const double tolerance = 7 * (workers + 1) * 256 * 0x1p-24;
      for (std::size_t i = 0; i < one.size(); ++i) {
        ASSERT_NEAR(one[i], many[i], tolerance) << workers << " workers, element " << i;
      }
    }
  }
}

TEST(Oracles, PermutedWorkersReachTheSameAnchors) {
  // Two workers: the one sum a + b does not depend on the order.
  const auto run = [](const std::function<QuadraticLoop::Options(int)>& loop) {
    return run_family({.workers = 2, .steps = 12, .outer = {.H = 4}, .loop = loop});
  };
  EXPECT_EQ(run(small_model), run([](int worker) { return small_model(1 - worker); }));
}

// PyTorch's form against v = x - eta d; x <- v + mu (v - v_old), v_0 = x_0, in fp64.
TEST(Oracles, NesterovEqualsFedMom) {
  double x = 2;
  double v = 2;
  const double eta = 0.7;
  const double mu = 0.9;
  std::vector<float> expected;
  for (int round = 0; round < 12; ++round) {
    const double shrink = std::pow(0.9, 5);
    const double mean = (1 + shrink * (x - 1) - 3 + shrink * (x + 3)) / 2;
    const double next = x - eta * (x - mean);
    x = next + mu * (next - v);
    v = next;
    expected.push_back(static_cast<float>(x));
  }
  const std::vector<float> ours = anchors_by_round("diloco", {.H = 5}, 2, 12);
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i], expected[i], 1e-5) << i;  // 12 rounds, gain 7
  }
}

TEST(Oracles, TheResultOfOneSyncIsAffineInAlpha) {
  std::map<double, std::vector<float>> local;
  for (const double alpha : {0.0, 0.25, 1.0}) {
    run_family(
        {.workers = 2,
         .steps = 4,
         .method = "streaming-diloco",
         .outer = {.H = 4, .alpha = alpha},
         .loop = small_model,
         .after_step = [&](int worker, const StepReport&, OuterStrategy&, QuadraticLoop& loop) {
           if (worker == 0) {
             local[alpha] = loop.all();
           }
         }});
  }
  ASSERT_NE(local[0.0], local[1.0]);
  for (std::size_t i = 0; i < local[0.0].size(); ++i) {
    EXPECT_EQ(local[0.25][i], 0.25f * local[1.0][i] + 0.75f * local[0.0][i]) << i;
  }
}

TEST(Oracles, AnchorsAreEqualOnAllWorkersAndSoAreParametersWithoutMixing) {
  for (const double alpha : {0.0, 0.5}) {
    constexpr int kWorkers = 3;
    std::map<std::int64_t, std::array<std::vector<float>, kWorkers>> anchors;
    std::array<std::vector<float>, kWorkers> local;
    std::mutex mutex;
    run_family({.workers = kWorkers,
                .steps = 12,
                .method = "streaming-diloco",
                .outer = {.H = 4,
                          .fragments = 2,
                          .offsets = OffsetsZero{},
                          .alpha = alpha,
                          .codec = "int8:256"},
                .loop = small_model,
                .after_step = [&](int worker, const StepReport& report, OuterStrategy& strategy,
                                  QuadraticLoop& loop) {
                  const std::scoped_lock lock(mutex);
                  const auto w = static_cast<std::size_t>(worker);
                  anchors[report.step.value()][w] = testing_support::anchors_of(strategy, loop);
                  local[w] = loop.all();
                }});
    for (const auto& [step, of_worker] : anchors) {
      EXPECT_EQ(of_worker[0], of_worker[1]) << "step " << step;
      EXPECT_EQ(of_worker[0], of_worker[2]) << "step " << step;
    }
    if (alpha == 0) {
      EXPECT_EQ(local[0], local[1]);
      EXPECT_EQ(local[0], local[2]);
    } else {
      EXPECT_NE(local[0], local[1]);
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
