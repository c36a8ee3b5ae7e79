// SPDX-License-Identifier: Apache-2.0
// 01-adam: what it is without loss, what is sent, and what survives.
#include "outer/methods/zero_one_adam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "outer/adam_loop.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using outer::ZeroOneSchedule;
using outer::ZeroOneStep;
using testing_support::AdamLoop;
using testing_support::MemoryState;

constexpr std::int64_t kNever = 1'000'000;

struct Run {
  std::string method = "01-adam";
  int workers = 2;
  int steps = 30;
  OuterOptions outer;
  AdamLoop::Options loop;
  std::function<void(int worker, const StepReport&, OuterStrategy&, AdamLoop&)> after_step;
};

/// Final parameters by worker.
std::vector<std::vector<float>> run(const Run& r) {
  std::vector<std::vector<float>> result(static_cast<std::size_t>(r.workers));
  run_in_process(r.workers, [&](WorkerContext& context) {
    AdamLoop::Options options = r.loop;
    options.worker = context.rank.value();
    if (options.worker != 0) options.not_finite_at = 0;
    AdamLoop inner(options);
    const auto strategy = make_outer_strategy(r.method, r.outer, inner, context.exchange);
    for (int t = 0; t < r.steps; ++t) {
      const StepReport report = strategy->step();
      if (r.after_step) r.after_step(context.rank.value(), report, *strategy, inner);
    }
    static_cast<void>(strategy->finish());
    result[static_cast<std::size_t>(context.rank.value())] = inner.all();
  });
  return result;
}

OuterOptions with(ZeroOneAdamOptions keys, const std::string& codec = "",
                  double variance_floor = 1e-6) {
  OuterOptions outer;
  outer.codec = codec;
  outer.zero_one_adam = keys;
  outer.one_bit_adam.variance_floor = variance_floor;
  return outer;
}

// I = 1 for ever: Adam without bias correction on the mean gradient, bit for bit that of 1-bit
// Adam's warm-up, which its own test compares with Adam in fp64.
TEST(ZeroOneAdam, WithItsFirstIntervalForEverItIsAdamWithoutBiasCorrection) {
  AdamLoop::Options loop;
  loop.adam.weight_decay = 0.1;
  loop.adam.clip = 3;
  for (const int workers : {1, 2, 3}) {
    const auto ours =
        run({.workers = workers, .outer = with({.var_update_scaler = kNever}), .loop = loop});
    OuterOptions warm_up;
    warm_up.one_bit_adam.freeze = kNever;
    warm_up.one_bit_adam.bias_correction = false;
    EXPECT_EQ(ours,
              run({.method = "1bit-adam", .workers = workers, .outer = warm_up, .loop = loop}))
        << workers;
  }
}

/// Both phases in fp64, with nothing lost: every worker's own x and m, and means that are exact.
std::vector<double> oracle(int workers, int steps, const ZeroOneAdamOptions& keys, double decay) {
  std::vector<std::unique_ptr<AdamLoop>> loops;
  for (int w = 0; w < workers; ++w) {
    AdamLoop::Options options;
    options.worker = w;
    loops.push_back(std::make_unique<AdamLoop>(options));
  }
  constexpr std::size_t kLanes = 8000;
  const double lr = 1e-2;
  using Vector = std::vector<double>;
  Vector start;
  for (const float each : loops[0]->all()) start.push_back(static_cast<double>(each));
  std::vector<Vector> x(loops.size(), start), m(loops.size(), Vector(kLanes)), u = m, g = m;
  Vector v(kLanes), anchor;
  double lr_sum = 0;
  ZeroOneSchedule schedule(keys);
  for (int t = 1; t <= steps; ++t) {
    const ZeroOneStep kind = schedule.next();
    if (t == keys.var_freeze_step + 1) anchor = x[0];
    for (std::size_t w = 0; w < loops.size(); ++w) {
      for (std::size_t k = 0; k < kLanes; ++k) {
        loops[w]->parameters()[k < 3000 ? 0 : 1].values[k < 3000 ? k : k - 3000] =
            static_cast<float>(x[w][k]);
      }
      static_cast<void>(loops[w]->gradients(StepIndex(t), {}));
      for (std::size_t k = 0; k < kLanes; ++k) {
        g[w][k] =
            static_cast<double>(loops[w]->gradient(k < 3000 ? 0 : 1)[k < 3000 ? k : k - 3000]);
      }
    }
    lr_sum += lr;
    for (std::size_t k = 0; k < kLanes; ++k) {
      const double wd = k < 3000 ? decay : 0;
      double mean = 0;
      for (const Vector& each : g) mean += each[k] / workers;
      if (kind == ZeroOneStep::kVariance) v[k] = 0.95 * v[k] + 0.05 * mean * mean;
      const double root = std::sqrt(v[k]) + 1e-8;
      const bool local = t > keys.var_freeze_step;
      double agreed = 0;
      for (std::size_t w = 0; w < loops.size(); ++w) {
        m[w][k] = 0.9 * m[w][k] + 0.1 * (local ? g[w][k] : mean);
        u[w][k] += lr * m[w][k];
        x[w][k] -= lr * (m[w][k] / root + (local ? 0 : wd * x[w][k]));
        agreed += u[w][k] / workers;
      }
      if (kind == ZeroOneStep::kSync) {
        anchor[k] -= agreed / root + lr_sum * wd * anchor[k];
        for (std::size_t w = 0; w < loops.size(); ++w) {
          m[w][k] = agreed / lr_sum;
          x[w][k] = anchor[k];
        }
      }
      if (kind == ZeroOneStep::kSync || !local) {
        for (Vector& each : u) each[k] = 0;
      }
    }
    if (kind != ZeroOneStep::kLocal) lr_sum = 0;
  }
  return x[0];
}

TEST(ZeroOneAdam, WithoutLossItIsBothPhasesAsWritten) {
  const ZeroOneAdamOptions keys{.var_freeze_step = 12,
                                .var_update_scaler = 4,
                                .local_step_scaler = 6,
                                .local_step_clipper = 4};
  for (const double decay : {0.0, 0.1}) {
    for (const int workers : {1, 3}) {
      AdamLoop::Options loop;
      loop.adam.weight_decay = decay;
      const auto ours =
          run({.workers = workers, .steps = 40, .outer = with(keys, "fp32", 0), .loop = loop});
      const std::vector<double> expected = oracle(workers, 40, keys, decay);
      for (std::size_t k = 0; k < expected.size(); ++k) {
        ASSERT_NEAR(ours[0][k], expected[k], 5e-5) << workers << " workers, lane " << k;
      }
    }
  }
}

// J = 1 for ever in phase B is 1-bit Adam's compressed stage.
TEST(ZeroOneAdam, WithASyncAtEveryStepItIsOneBitAdam) {
  const auto ours = run(
      {.workers = 3,
       .outer = with({.var_freeze_step = 8, .var_update_scaler = kNever, .local_step_clipper = 1},
                     "fp32")});
  OuterOptions one_bit;
  one_bit.codec = "fp32";
  one_bit.one_bit_adam.freeze = 8;
  one_bit.one_bit_adam.bias_correction = false;
  const auto theirs = run({.method = "1bit-adam", .workers = 3, .outer = one_bit});
  for (std::size_t k = 0; k < ours[0].size(); ++k) {
    ASSERT_NEAR(ours[0][k], theirs[0][k], 2e-5) << k;
  }
}

const ZeroOneAdamOptions kShort{
    .var_freeze_step = 14, .var_update_scaler = 4, .local_step_scaler = 8, .local_step_clipper = 4};

TEST(ZeroOneAdam, AllWorkersHoldTheSameBitsAfterEverySync) {
  for (const ReductionKind kind : {ReductionKind::kGather, ReductionKind::kReduce}) {
    constexpr std::size_t kWorkers = 3;
    std::array<std::vector<std::vector<float>>, kWorkers> x, anchors;
    OuterOptions outer = with(kShort);
    outer.exchange = kind;
    const auto last = run({.workers = kWorkers,
                           .steps = 41,
                           .outer = outer,
                           .after_step = [&](int worker, const StepReport&, OuterStrategy& strategy,
                                             AdamLoop& inner) {
                             const auto w = static_cast<std::size_t>(worker);
                             x[w].push_back(inner.all());
                             anchors[w].push_back(testing_support::anchors_of(strategy, inner));
                           }});
    ZeroOneSchedule schedule(kShort);
    int apart = 0;
    for (std::size_t t = 0; t < 41; ++t) {
      EXPECT_EQ(anchors[0][t], anchors[1][t]) << "step " << t + 1;
      EXPECT_EQ(anchors[0][t], anchors[2][t]) << "step " << t + 1;
      if (schedule.next() == ZeroOneStep::kLocal) {
        EXPECT_NE(x[0][t], x[1][t]) << "step " << t + 1;
        ++apart;
      } else {
        EXPECT_EQ(x[0][t], x[1][t]) << "step " << t + 1;
        EXPECT_EQ(x[0][t], anchors[0][t]) << "step " << t + 1;
      }
    }
    EXPECT_GT(apart, 5);
    EXPECT_EQ(last[0], last[1]);  // step 41 is local: finish has synchronised
    EXPECT_EQ(last[0], last[2]);
  }
}

// In DeepSpeed a load starts the intervals again and drops the errors.
TEST(ZeroOneAdam, ResumedItIsTheSameBitForBit) {
  constexpr int kSteps = 45;
  const auto go = [&](int stop, std::array<MemoryState, 3>* saved, bool resume) {
    std::array<std::vector<float>, 3> x;
    run_in_process(3, [&](WorkerContext& context) {
      const auto w = static_cast<std::size_t>(context.rank.value());
      AdamLoop::Options options;
      options.worker = context.rank.value();
      AdamLoop inner(options);
      const auto strategy = make_outer_strategy("01-adam", with(kShort), inner, context.exchange);
      if (resume) {
        inner.load((*saved)[w]);
        strategy->load((*saved)[w]);
      }
      while (strategy->steps() < StepIndex(stop)) (void)strategy->step();
      if (saved != nullptr && !resume) {
        inner.save((*saved)[w]);
        strategy->save((*saved)[w]);
        return;
      }
      (void)strategy->finish();
      x[w] = inner.all();
    });
    return x;
  };
  const auto expected = go(kSteps, nullptr, false);
  for (const int stop : {1, 7, 13, 14, 15, 22, 29, 30, 33, 43}) {
    std::array<MemoryState, 3> saved;
    (void)go(stop, &saved, false);
    EXPECT_EQ(go(kSteps, &saved, true), expected) << "stopped after " << stop;
  }
}

// They measured gradients, and sums of momenta come next.
TEST(ZeroOneAdam, ErrorsAreZeroWhenLocalStepsBegin) {
  run_in_process(2, [&](WorkerContext& context) {
    AdamLoop::Options options;
    options.worker = context.rank.value();
    AdamLoop inner(options);
    const auto strategy = make_outer_strategy("01-adam", with(kShort), inner, context.exchange);
    const auto residual = [&] {
      MemoryState state;
      strategy->save(state);
      std::vector<float> values(8000);
      state.tensor("residual/worker/0", std::span<float>(values));
      return values;
    };
    while (strategy->steps() < StepIndex(13)) (void)strategy->step();
    EXPECT_NE(residual(), std::vector<float>(8000));
    (void)strategy->step();  // step 14 compresses too, and is the last of phase A
    EXPECT_EQ(residual(), std::vector<float>(8000));
    (void)strategy->step();
    EXPECT_NE(residual(), std::vector<float>(8000));
  });
}

// The bug it avoids: at one worker the branch that skips the exchange skips the momentum too.
TEST(ZeroOneAdam, OneWorkersMomentumMovesAtEveryStep) {
  std::vector<float> before;
  const auto loss_at = [](const std::vector<float>& x) {
    double sum = 0;
    for (const float each : x) sum += static_cast<double>(each) * static_cast<double>(each);
    return sum;
  };
  double first = 0;
  double last = 0;
  run({.workers = 1,
       .steps = 40,
       .outer = with(kShort),
       .after_step = [&](int, const StepReport& report, OuterStrategy&, AdamLoop& inner) {
         const std::span<const float> m = inner.adam_moments(1).first;
         const std::vector<float> now(m.begin(), m.end());
         EXPECT_NE(now, before) << "step " << report.step.value();
         before = now;
         (first == 0 ? first : last) = loss_at(inner.all());
       }});
  EXPECT_LT(last, first);
}

// Phase A: 4 bytes a lane at a step of the variance; else a bit and a scale for 4,096 lanes. Phase
// B: the same at a sync and nothing between. Gathers of two: each sends its own.
TEST(ZeroOneAdam, BytesAreThoseOfItsSchedule) {
  ZeroOneSchedule schedule(kShort);
  std::vector<std::uint64_t> expected;
  for (int t = 1; t <= 40; ++t) {
    switch (schedule.next()) {
      case ZeroOneStep::kVariance:
        expected.push_back(8000 * 4);
        break;
      case ZeroOneStep::kLocal:
        expected.push_back(0);
        break;
      default:
        expected.push_back(8000 / 8 + 2 * 4);
    }
  }
  std::array<std::vector<std::uint64_t>, 2> sent;
  run({.steps = 40,
       .outer = with(kShort),
       .after_step = [&](int worker, const StepReport& report, OuterStrategy&, AdamLoop&) {
         std::uint64_t bytes = 0;
         for (const RoundReport& round : report.rounds) bytes += round.payload_bytes;
         sent[static_cast<std::size_t>(worker)].push_back(bytes);
       }});
  EXPECT_EQ(sent[0], expected);
  EXPECT_EQ(sent[1], expected);
}

TEST(ZeroOneAdam, LanesWithoutAGradientStayWhereTheyAre) {
  AdamLoop::Options loop;
  loop.dead = 700;
  const auto x = run({.steps = 60, .outer = with(kShort), .loop = loop});
  const std::vector<float> start = AdamLoop(loop).all();
  for (std::size_t k = 2300; k < 3000; ++k) ASSERT_EQ(x[0][k], start[k]) << k;
  for (const float each : x[0]) ASSERT_TRUE(std::isfinite(each));
}

TEST(ZeroOneAdam, AGradientThatIsNotFiniteIsLeftOut) {
  for (const int bad : {13, 20, 33}) {  // compressed, sync, local
    ZeroOneSchedule schedule(kShort);
    schedule.go_on_from(StepIndex(bad - 1));
    ASSERT_NE(schedule.next(), ZeroOneStep::kVariance) << bad;  // which is ddp, with its rule
    AdamLoop::Options loop;
    loop.not_finite_at = bad;
    const auto x = run({.steps = 40, .outer = with(kShort), .loop = loop});
    EXPECT_EQ(x[0], x[1]) << bad;
    for (const float each : x[0]) ASSERT_TRUE(std::isfinite(each)) << bad;
  }
}

// Signs cost next to nothing, and without error feedback they do not arrive.
TEST(ZeroOneAdam, WithErrorFeedbackSignsArriveWhereFullPrecisionDoes) {
  AdamLoop::Options loop;
  loop.decay_steps = 600;
  const auto loss = [&](const std::string& codec) {
    const auto x = run({.steps = 600,
                        .outer = with({.var_freeze_step = 120,
                                       .var_update_scaler = 16,
                                       .local_step_scaler = 120,
                                       .local_step_clipper = 4},
                                      codec),
                        .loop = loop});
    double sum = 0;
    for (std::size_t k = 0; k < x[0].size(); ++k) {
      const std::size_t lane = k < 3000 ? k : k - 3000;
      sum += 0.5 * static_cast<double>(AdamLoop::curvature(lane) * x[0][k] * x[0][k]);
    }
    return sum;
  };
  const double start = AdamLoop(loop).loss();
  const double lossless = loss("fp32");
  const double signs = loss("");
  const double without = loss("1bit:4096:norm=l2");
  EXPECT_LT(lossless, 0.05 * start);
  EXPECT_LT(std::abs(signs - lossless), 0.002 * start) << lossless << " " << signs;
  EXPECT_GT(std::abs(without - lossless), 5 * std::abs(signs - lossless))
      << lossless << " " << signs << " " << without;
}

TEST(ZeroOneAdam, BadKeysAreRefusedByName) {
  const auto refusal = [](const OuterOptions& outer) {
    std::string text;
    run_in_process(1, [&](WorkerContext& context) {
      AdamLoop inner({});
      try {
        (void)make_outer_strategy("01-adam", outer, inner, context.exchange);
      } catch (const ConfigError& error) {
        text = error.what();
      }
    });
    return text;
  };
  EXPECT_THAT(refusal(with({.var_freeze_step = 0})),
              ::testing::StartsWith("outer.var_freeze_step = 0: must be >= 1"));
  EXPECT_THAT(refusal(with({.var_update_scaler = 0})),
              ::testing::StartsWith("outer.var_update_scaler = 0"));
  EXPECT_THAT(refusal(with({.local_step_scaler = -1})),
              ::testing::StartsWith("outer.local_step_scaler = -1"));
  EXPECT_THAT(refusal(with({.local_step_clipper = 0})),
              ::testing::StartsWith("outer.local_step_clipper = 0"));
  OuterOptions freeze;
  freeze.one_bit_adam.freeze = 4;
  EXPECT_THAT(refusal(freeze), ::testing::StartsWith("outer.freeze = 4: method 01-adam"));
}

}  // namespace
}  // namespace isthmus::this_file
