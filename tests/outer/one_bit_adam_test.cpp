// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/one_bit_adam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "outer/adam_loop.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::AdamLoop;
using testing_support::MemoryState;

constexpr std::int64_t kNever = 1'000'000;
constexpr const char* kSigns = "1bit:4096:norm=l2:ef";

struct Run {
  std::string method = "1bit-adam";
  int workers = 2;
  int steps = 30;
  OuterOptions outer;
  AdamLoop::Options loop;
  std::function<void(int worker, const StepReport&, AdamLoop&)> after_step;
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
      if (r.after_step) r.after_step(context.rank.value(), report, inner);
    }
    static_cast<void>(strategy->finish());
    result[static_cast<std::size_t>(context.rank.value())] = inner.all();
  });
  return result;
}

double loss_of(const std::vector<float>& x) {
  double sum = 0;
  const AdamLoop::Options sizes;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const std::size_t lane = k < sizes.first ? k : k - sizes.first;
    sum += 0.5 * static_cast<double>(AdamLoop::curvature(lane) * x[k] * x[k]);
  }
  return sum;
}

TEST(OneBitAdam, InWarmUpItIsDdpBitForBit) {
  for (const int workers : {1, 2, 3}) {
    const auto warm = run({.workers = workers, .outer = {.one_bit_adam = {.freeze = kNever}}});
    const auto ddp = run({.method = "ddp", .workers = workers});
    EXPECT_EQ(warm, ddp) << workers;
  }
}

TEST(OneBitAdam, WithoutBiasCorrectionTheWarmUpIsPlainAdam) {
  AdamLoop::Options loop;
  loop.adam.weight_decay = 0.1;
  const auto result = run({.workers = 1,
                           .steps = 5,
                           .outer = {.one_bit_adam = {.freeze = kNever, .bias_correction = false}},
                           .loop = loop});
  AdamLoop oracle(loop);
  std::vector<double> x, m(8000), v(8000);
  for (const float each : oracle.all()) x.push_back(static_cast<double>(each));
  for (int t = 1; t <= 5; ++t) {
    for (std::size_t k = 0; k < x.size(); ++k) {
      oracle.parameters()[k < 3000 ? 0 : 1].values[k < 3000 ? k : k - 3000] =
          static_cast<float>(x[k]);
    }
    static_cast<void>(oracle.gradients(StepIndex(t), {}));
    for (std::size_t k = 0; k < x.size(); ++k) {
      const auto g =
          static_cast<double>(oracle.gradient(k < 3000 ? 0 : 1)[k < 3000 ? k : k - 3000]);
      m[k] = 0.9 * m[k] + 0.1 * g;
      v[k] = 0.95 * v[k] + 0.05 * g * g;
      x[k] -= 1e-2 * (m[k] / (std::sqrt(v[k]) + 1e-8) + (k < 3000 ? 0.1 : 0.0) * x[k]);
    }
  }
  for (std::size_t k = 0; k < x.size(); ++k) ASSERT_NEAR(result[0][k], x[k], 1e-5) << k;
}

// With a codec that loses nothing the compressed stage is momentum under a fixed preconditioner, on
// the mean gradient.
TEST(OneBitAdam, WithoutLossItIsMomentumUnderTheFrozenVariance) {
  constexpr int kFreeze = 6;
  constexpr int kSteps = 20;
  for (const int workers : {1, 3}) {
    const auto result =
        run({.workers = workers,
             .steps = kSteps,
             .outer = {.codec = "fp32", .one_bit_adam = {.freeze = kFreeze, .variance_floor = 0}}});
    std::vector<std::unique_ptr<AdamLoop>> loops;
    for (int w = 0; w < workers; ++w) {
      AdamLoop::Options options;
      options.worker = w;
      loops.push_back(std::make_unique<AdamLoop>(options));
    }
    std::vector<double> x, m(8000), v(8000);
    for (const float each : loops[0]->all()) x.push_back(static_cast<double>(each));
    for (int t = 1; t <= kSteps; ++t) {
      std::vector<double> mean(8000);
      for (const auto& loop : loops) {
        for (std::size_t k = 0; k < x.size(); ++k) {
          loop->parameters()[k < 3000 ? 0 : 1].values[k < 3000 ? k : k - 3000] =
              static_cast<float>(x[k]);
        }
        static_cast<void>(loop->gradients(StepIndex(t), {}));
        for (std::size_t k = 0; k < x.size(); ++k) {
          mean[k] +=
              static_cast<double>(loop->gradient(k < 3000 ? 0 : 1)[k < 3000 ? k : k - 3000]) /
              workers;
        }
      }
      for (std::size_t k = 0; k < x.size(); ++k) {
        m[k] = 0.9 * m[k] + 0.1 * mean[k];
        if (t <= kFreeze) v[k] = 0.95 * v[k] + 0.05 * mean[k] * mean[k];
        const double second = v[k] / (1 - std::pow(0.95, std::min(t, kFreeze)));
        x[k] -= 1e-2 * m[k] / (1 - std::pow(0.9, t)) / (std::sqrt(second) + 1e-8);
      }
    }
    for (std::size_t k = 0; k < x.size(); ++k) {
      ASSERT_NEAR(result[0][k], x[k], 2e-5) << workers << " lane " << k;
    }
  }
}

TEST(OneBitAdam, AllWorkersHoldTheSameBitsAfterEveryStep) {
  for (const ReductionKind kind : {ReductionKind::kGather, ReductionKind::kReduce}) {
    constexpr int kWorkers = 3;
    std::vector<std::vector<std::vector<float>>> seen(kWorkers);
    run({.workers = kWorkers,
         .outer = {.exchange = kind, .one_bit_adam = {.freeze = 8}},
         .after_step = [&](int worker, const StepReport&, AdamLoop& loop) {
           seen[static_cast<std::size_t>(worker)].push_back(loop.all());
         }});
    EXPECT_EQ(seen[1], seen[0]);
    EXPECT_EQ(seen[2], seen[0]);
  }
}

TEST(OneBitAdam, MaskedLanesStayBitZeroWhereAnUnmaskedTwinBlowsUp) {
  AdamLoop::Options loop;
  loop.dead = 700;
  std::vector<float> start;
  const auto result =
      run({.workers = 2,
           .steps = 400,
           .outer = {.one_bit_adam = {.freeze = 20}},
           .loop = loop,
           .after_step = [&](int worker, const StepReport& report, AdamLoop& inner) {
             if (worker != 0) return;
             for (std::size_t k = 2300; k < 3000; ++k) {
               ASSERT_EQ(inner.adam_moments(0).first[k], 0.0f) << report.step.value();
               ASSERT_EQ(inner.adam_moments(0).second[k], 0.0f);
             }
           }});
  const AdamLoop untouched(loop);
  for (std::size_t k = 2300; k < 3000; ++k) ASSERT_EQ(result[0][k], untouched.all()[k]);
  // The twin sends the dead lanes too: each comes back as plus or minus the scale of its block.
  const auto codec = make_codec(kSigns);
  std::vector<float> momentum(4096, 1.0f);
  std::fill(momentum.begin() + 2300, momentum.begin() + 3000, 0.0f);
  std::vector<float> sent(momentum.size());
  ASSERT_TRUE(decode(*codec, encode(*codec, momentum).bytes, sent));
  EXPECT_GT(std::abs(sent[2500]) / 1e-8, 1e7);  // times lr: what such a lane would step
}

TEST(OneBitAdam, ASecondRunFromACheckpointIsTheFirst) {
  constexpr int kWorkers = 3;
  for (const int cut : {5, 12, 21}) {  // in warm-up, at the freeze, after it
    const OuterOptions outer{.exchange = ReductionKind::kReduce, .one_bit_adam = {.freeze = 12}};
    const auto whole = run({.workers = kWorkers, .steps = 30, .outer = outer});
    std::vector<std::unique_ptr<MemoryState>> inner_states(kWorkers), outer_states(kWorkers);
    run_in_process(kWorkers, [&](WorkerContext& context) {
      AdamLoop inner({.worker = context.rank.value()});
      const auto strategy = make_outer_strategy("1bit-adam", outer, inner, context.exchange);
      for (int t = 0; t < cut; ++t) strategy->step();
      const auto w = static_cast<std::size_t>(context.rank.value());
      inner_states[w] = std::make_unique<MemoryState>();
      outer_states[w] = std::make_unique<MemoryState>();
      inner.save(*inner_states[w]);
      strategy->save(*outer_states[w]);
      static_cast<void>(strategy->finish());
    });
    std::vector<std::vector<float>> resumed(kWorkers);
    run_in_process(kWorkers, [&](WorkerContext& context) {
      const auto w = static_cast<std::size_t>(context.rank.value());
      AdamLoop inner({.worker = context.rank.value()});
      inner.load(*inner_states[w]);
      const auto strategy = make_outer_strategy("1bit-adam", outer, inner, context.exchange);
      strategy->load(*outer_states[w]);
      for (int t = cut; t < 30; ++t) strategy->step();
      static_cast<void>(strategy->finish());
      resumed[w] = inner.all();
    });
    EXPECT_EQ(resumed, whole) << "cut after " << cut;
  }
}

TEST(OneBitAdam, KeepsOneResidualAParameterAndAShareOfTheOwners) {
  constexpr int kWorkers = 3;
  std::vector<std::size_t> values(kWorkers);
  const OuterOptions outer{.exchange = ReductionKind::kReduce, .one_bit_adam = {.freeze = 2}};
  run_in_process(kWorkers, [&](WorkerContext& context) {
    AdamLoop inner({.worker = context.rank.value()});
    const auto strategy = make_outer_strategy("1bit-adam", outer, inner, context.exchange);
    for (int t = 0; t < 5; ++t) strategy->step();
    static_cast<void>(strategy->finish());
    MemoryState state;
    strategy->save(state);
    EXPECT_EQ(state.tensor_values("residual/worker/"),
              8000u * static_cast<std::size_t>(outer_state_values("1bit-adam", outer)));
    values[static_cast<std::size_t>(context.rank.value())] = state.tensor_values("residual/owner/");
  });
  EXPECT_EQ(values[0] + values[1] + values[2], 8000u);
}

TEST(OneBitAdam, RoundsSayAgreementAndCodecErrorOnceFrozen) {
  run({.steps = 8,
       .outer = {.one_bit_adam = {.freeze = 4}},
       .loop = {},
       .after_step = [](int, const StepReport& report, AdamLoop&) {
         ASSERT_FALSE(report.rounds.empty());
         for (const RoundReport& round : report.rounds) {
           const bool frozen = report.step.value() > 4;
           EXPECT_EQ(round.cosine.has_value(), frozen) << report.step.value();
           EXPECT_EQ(round.codec_error.has_value(), frozen) << report.step.value();
           if (frozen) {
             EXPECT_GT(*round.cosine, 0);
             EXPECT_GT(*round.codec_error, 0);
             EXPECT_LT(*round.codec_error, 1);
           }
         }
       }});
}

TEST(OneBitAdam, BytesAreTheFormulaOfThePaper) {
  for (const ReductionKind kind : {ReductionKind::kGather, ReductionKind::kReduce}) {
    constexpr int kSteps = 40;
    constexpr int kFreeze = 6;  // w = 0.15
    std::uint64_t ours = 0, half = 0;
    const auto count = [](std::uint64_t& sum) {
      return [&sum](int worker, const StepReport& report, AdamLoop&) {
        for (const RoundReport& round : report.rounds) {
          sum += worker == 0 ? round.payload_bytes : 0;
        }
      };
    };
    AdamLoop::Options loop;
    loop.first = 1 << 16;
    loop.second = 1 << 16;
    run({.steps = kSteps,
         .outer = {.exchange = kind, .one_bit_adam = {.freeze = kFreeze, .warmup_codec = "fp16"}},
         .loop = loop,
         .after_step = count(ours)});
    run({.method = "ddp",
         .steps = kSteps,
         .outer = {.codec = "fp16", .exchange = kind},
         .loop = loop,
         .after_step = count(half)});
    const double w = static_cast<double>(kFreeze) / kSteps;
    const double formula = 1 / (w + (1 - w) / 16);
    EXPECT_NEAR(static_cast<double>(half) / static_cast<double>(ours), formula, 0.02 * formula);
  }
}

// arXiv:2102.02888 figure 1: compressing the gradient that feeds a live variance does worse than
// compressing the momentum under a frozen one.
TEST(OneBitAdam, ReachesAdamWhereCompressedGradientsDoNot) {
  AdamLoop::Options loop;
  loop.lr = 2e-2;
  loop.decay_steps = 600;
  loop.adam.beta2 = 0.99;
  const auto final_loss = [&](const std::string& method, const OuterOptions& outer) {
    return loss_of(
        run({.method = method, .workers = 4, .steps = 600, .outer = outer, .loop = loop})[0]);
  };
  const AdamLoop untouched(loop);
  const double start = loss_of(untouched.all());
  const double adam = final_loss("ddp", {});
  const double one_bit = final_loss("1bit-adam", {.one_bit_adam = {.freeze = 90}});
  const double live = final_loss("ddp", {.codec = kSigns});
  EXPECT_LT(one_bit - adam, 0.02 * start);
  EXPECT_GT(live - adam, 3 * std::abs(one_bit - adam)) << adam << " " << one_bit << " " << live;
}

TEST(OneBitAdam, RefusesAWarmUpWithErrorFeedback) {
  try {
    run({.workers = 1, .steps = 1, .outer = {.one_bit_adam = {.warmup_codec = "int8:ef"}}});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("outer.warmup_codec"));
  }
}

TEST(OneBitAdam, FreezesWhenTheVarianceHasSettled) {
  AdamLoop::Options loop;
  loop.noise = 4;  // the variance is the noise's, and soon steady
  std::optional<StepIndex> frozen;
  run_in_process(2, [&](WorkerContext& context) {
    AdamLoop::Options options = loop;
    options.worker = context.rank.value();
    AdamLoop inner(options);
    const auto strategy = make_outer_strategy("1bit-adam", {}, inner, context.exchange);
    for (int t = 0; t < 300; ++t) strategy->step();
    static_cast<void>(strategy->finish());
    if (context.rank == WorkerId(0)) {
      frozen = dynamic_cast<const outer::OneBitAdam&>(*strategy).frozen_at();
    }
  });
  ASSERT_TRUE(frozen.has_value());
  EXPECT_EQ(frozen->value() % 20, 0) << "tested every D = 1 / (1 - 0.95) steps";
  EXPECT_GT(frozen->value(), 20);
}

TEST(OneBitAdam, AGradientThatIsNotFiniteIsLeftOut) {
  AdamLoop::Options loop;
  loop.not_finite_at = 15;  // on worker 0
  for (const int workers : {1, 2}) {
    std::vector<int> members;
    const auto result = run({.workers = workers,
                             .steps = 25,
                             .outer = {.one_bit_adam = {.freeze = 10}},
                             .loop = loop,
                             .after_step = [&](int worker, const StepReport& report, AdamLoop&) {
                               if (worker == 0) members.push_back(report.rounds.at(0).members);
                             }});
    EXPECT_EQ(members[14], workers - 1);
    EXPECT_EQ(members[15], workers);
    for (const float x : result[0]) ASSERT_TRUE(std::isfinite(x));
  }
}

// What is sent plus what both ends hold back is what was put in, lane by lane.
TEST(CompressedMean, LosesNoMass) {
  constexpr int kWorkers = 4;
  constexpr std::size_t kValues = 3 * kTileValues + 77;
  constexpr int kSteps = 60;
  for (const char* codec : {kSigns, "int4:64:ef", "topk:64:ef"}) {
    std::vector<double> put(kValues), sent(kValues), held(kValues);
    std::mutex mutex;
    run_in_process(kWorkers, [&](WorkerContext& context) {
      const std::shared_ptr<const Codec> made = make_codec(codec);
      outer::HostWorkerEnd end({kValues}, made);
      outer::CompressedMean mean(
          {kValues},
          {.codec = made, .exchange = ReductionKind::kReduce, .patience = Duration::max()},
          context.exchange, end);
      const Rng rng{static_cast<std::uint64_t>(context.rank.value()), Stream::kTestData};
      for (int t = 1; t <= kSteps; ++t) {
        std::vector<float> u(kValues);
        for (std::size_t i = 0; i < kValues; ++i) {
          u[i] = static_cast<float>(rng.normal(i, static_cast<std::uint32_t>(t)));
        }
        end.set_fill([&](std::size_t, std::size_t begin, std::span<float> tile) {
          std::copy_n(u.begin() + static_cast<std::ptrdiff_t>(begin), tile.size(), tile.begin());
        });
        static_cast<void>(
            mean.run(StepIndex(t), true, true, [&](std::size_t, std::span<const float> values) {
              if (context.rank != WorkerId(0)) return;
              for (std::size_t i = 0; i < kValues; ++i) sent[i] += static_cast<double>(values[i]);
            }));
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < kValues; ++i) put[i] += static_cast<double>(u[i]) / kWorkers;
      }
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < kValues; ++i) {
        held[i] += static_cast<double>(mean.residual(0)[i]) / kWorkers;
      }
      // Four tiles for four members: each owns one, the last is short.
      const std::span<const float> own = mean.owner_residual(0);
      const std::size_t first = static_cast<std::size_t>(context.rank.value()) * kTileValues;
      ASSERT_EQ(own.size(), std::min(kTileValues, kValues - first));
      for (std::size_t i = 0; i < own.size(); ++i) held[first + i] += static_cast<double>(own[i]);
    });
    for (std::size_t i = 0; i < kValues; ++i) {
      ASSERT_NEAR(sent[i] + held[i], put[i], kSteps * 1e-5) << codec << " lane " << i;
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
