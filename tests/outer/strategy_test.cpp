// SPDX-License-Identifier: Apache-2.0
// Options, checkpoints, final syncs, buckets, bytes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "outer/methods/ddp.h"
#include "outer/parts/buckets.h"
#include "outer/parts/outer_rates.h"
#include "outer/parts/settings.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::anchors_of;
using testing_support::QuadraticLoop;
using testing_support::run_family;
using testing_support::small_model;

std::string refusal(const std::string& method, const OuterOptions& options) {
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
}

TEST(Options, RangesAreRefusedByKeyValueAndRule) {
  EXPECT_EQ(refusal("diloco", {.H = 0}),
            "outer.H = 0: must be >= 1 (inner steps between outer syncs)");
  EXPECT_THAT(refusal("diloco", {.H = 2, .lr = -0.5}),
              ::testing::StartsWith("outer.lr = -0.5: must be > 0"));
  EXPECT_THAT(refusal("diloco", {.H = 2, .momentum = 1.0}),
              ::testing::StartsWith("outer.momentum = 1: must be in 0 <= momentum < 1"));
  EXPECT_THAT(refusal("streaming-diloco", {.H = 4, .overlap = 4}),
              ::testing::StartsWith("outer.overlap = 4: must be in 0 .. 3"));
  EXPECT_THAT(refusal("streaming-diloco", {.H = 4, .alpha = 1.5}),
              ::testing::StartsWith("outer.alpha = 1.5: must be in 0 <= alpha <= 1"));
  EXPECT_THAT(refusal("streaming-diloco", {.H = 4, .fragments = 9}),
              ::testing::StartsWith("outer.fragments = 9: must not exceed the model's 4 layers"));
  EXPECT_THAT(refusal("streaming-diloco",
                      {.H = 4, .fragments = 2, .offsets = std::vector<std::int64_t>{0, 1}}),
              ::testing::StartsWith("outer.offsets = [0, 1]: must have 3 values"));
  EXPECT_THAT(refusal("diloco", {.H = 2, .codec = "int3"}), ::testing::HasSubstr("int3"));
  EXPECT_THAT(refusal("dilco", {}), ::testing::HasSubstr("there are ddp, localsgd, diloco"));
}

TEST(Options, RampsThatDoNotFitTheRunAreRefused) {
  OuterOptions outer{.H = 2};
  outer.lr_ramp.decay = 10;
  EXPECT_THAT(refusal("diloco", outer),
              ::testing::StartsWith("outer.lr_decay = 10: must be absent"));
  outer.run_steps = 15;
  EXPECT_EQ(refusal("diloco", outer), "");
  outer.lr_ramp.warmup = 6;
  EXPECT_THAT(refusal("diloco", outer),
              ::testing::StartsWith("outer.lr_decay = 10: must be at most the 9 steps"));
  outer.lr_ramp = {.warmup = -1, .decay = 0, .floor = 0.1};
  EXPECT_THAT(refusal("diloco", outer),
              ::testing::StartsWith("outer.lr_warmup = -1: must be >= 0"));
  outer.lr_ramp = {.warmup = 0, .decay = 4, .floor = 0};
  EXPECT_THAT(refusal("muloco", outer),
              ::testing::StartsWith("outer.lr_floor = 0: must be in 0 < lr_floor <= 1"));
  outer.lr_ramp = {.warmup = 0, .decay = 4, .floor = 0.5};
  EXPECT_THAT(refusal("localsgd", outer), ::testing::StartsWith("outer.lr_decay = 4 of 15 steps"));
  EXPECT_THAT(refusal("delayed", outer), ::testing::HasSubstr("method delayed does not use it"));
  OuterOptions still{.H = 2, .momentum = 0.0};
  still.momentum_ramp.warmup = 4;
  EXPECT_THAT(refusal("diloco", still), ::testing::StartsWith("outer.momentum = 0: must be > 0"));
}

// Workers compare the terms before step 1, and sites in their greeting.
TEST(Options, RampsAreTermsThatAllWorkersShare) {
  OuterOptions outer{.H = 2};
  outer.run_steps = 40;
  const std::vector<MethodInfo> known = methods();
  const auto muloco = std::ranges::find(known, "muloco", &MethodInfo::name);
  const StartTerms plain = outer::start_terms(*muloco, outer);
  for (std::int64_t OuterRamp::*const length : {&OuterRamp::warmup, &OuterRamp::decay}) {
    for (OuterRamp OuterOptions::*const ramp :
         {&OuterOptions::lr_ramp, &OuterOptions::momentum_ramp}) {
      OuterOptions other = outer;
      other.*ramp.*length = 8;
      const StartTerms terms = outer::start_terms(*muloco, other);
      EXPECT_NE(terms, plain);
      other.run_steps = 50;  // a decay then begins elsewhere
      EXPECT_EQ(outer::start_terms(*muloco, other) != terms, length == &OuterRamp::decay);
    }
  }
}

// A round's rates are a function of the step of its sending, whatever came before.
TEST(OuterRates, AreAFunctionOfTheStep) {
  const OuterRamp ramp{.warmup = 10, .decay = 20, .floor = 0.25};
  const auto share = [&](std::int64_t sent) {
    return outer::ramp_share(ramp, StepIndex(sent), 100);
  };
  EXPECT_DOUBLE_EQ(share(1), 0.1);
  EXPECT_DOUBLE_EQ(share(10), 1);
  EXPECT_DOUBLE_EQ(share(80), 1);
  EXPECT_DOUBLE_EQ(share(90), 0.625);
  EXPECT_DOUBLE_EQ(share(100), 0.25);
  EXPECT_DOUBLE_EQ(share(130), 0.25) << "a run that goes on beyond its end";
  EXPECT_DOUBLE_EQ(share(1), 0.1) << "again";
  EXPECT_DOUBLE_EQ(outer::ramp_share({}, StepIndex(3), 0), 1);
  const outer::OuterRates rates{
      .top = {.rule = kernels::OuterStepRule::kNesterov, .eta = 0.5f, .mu = 0.5f},
      .lr = {.warmup = 4, .decay = 0, .floor = 0.1},
      .momentum = {.warmup = 0, .decay = 10, .floor = 0},
      .run_steps = 10};
  EXPECT_TRUE(rates.vary());
  EXPECT_EQ(rates.at(StepIndex(2)).eta, 0.25f);
  EXPECT_EQ(rates.at(StepIndex(10)).mu, 0.0f);
  EXPECT_EQ(rates.at(StepIndex(10)).rule, kernels::OuterStepRule::kNesterov);
}

TEST(Options, KeysTheMethodDoesNotUseAreRefused) {
  EXPECT_EQ(refusal("ddp", {.H = 8}),
            "outer.H = 8: method ddp does not use it (its keys: codec, exchange, commit); remove "
            "it or choose "
            "another outer.method");
  EXPECT_THAT(refusal("localsgd", {.H = 2, .lr = 0.5}),
              ::testing::StartsWith("outer.lr = 0.5: method localsgd"));
  EXPECT_THAT(refusal("diloco", {.H = 2, .fragments = 2}),
              ::testing::StartsWith("outer.fragments = 2"));
  EXPECT_THAT(refusal("diloco", {.H = 2, .alpha = 0.0}), ::testing::StartsWith("outer.alpha = 0"));
  EXPECT_THAT(refusal("ddp", {.final_sync = FinalSync::kDrain}),
              ::testing::StartsWith("outer.final_sync = drain"));
  EXPECT_THAT(refusal("ddp", {.final_sync = FinalSync::kNone}),
              ::testing::StartsWith("outer.final_sync = none"));
}

TEST(Options, EveryMethodRunsWithOneWorkerAndWithSeveral) {
  for (const MethodInfo& method : methods()) {
    const bool takes_codec = std::ranges::find(method.keys, "codec") != method.keys.end();
    for (const CodecInfo& codec : codecs()) {
      if (!takes_codec && codec.name != "fp32") {
        continue;  // it has a form of its own
      }
      for (const int workers : {1, 2, 3}) {
        if (method.one_worker && workers > 1) continue;
        const std::vector<float> result = run_family({.workers = workers,
                                                      .steps = 3,
                                                      .method = method.name,
                                                      .outer = {.codec = codec.name},
                                                      .loop = small_model});
        EXPECT_EQ(result.size(), 11098u);
        for (const float value : result) {
          ASSERT_TRUE(std::isfinite(value)) << method.name << " " << codec.name;
        }
      }
    }
  }
}

TEST(StreamingDiLoCo, AppliesEveryFragmentExactlyOverlapStepsAfterItsSend) {
  constexpr int kSteps = 30;
  struct Case {
    std::int64_t H, overlap;
    int fragments;
  };
  for (const Case& c : {Case{1, 0, 2}, {5, 0, 2}, {5, 1, 4}, {5, 4, 2}, {7, 3, 1}, {7, 6, 4}}) {
    const std::int64_t F = c.fragments == 1 ? 1 : c.fragments + 1;
    std::mutex mutex;
    std::array<std::vector<std::int64_t>, 2> rounds;  // send step * F + fragment, of each worker
    run_family(
        {.workers = 2,
         .steps = kSteps,
         .method = "streaming-diloco",
         .outer = {.H = c.H, .fragments = c.fragments, .overlap = c.overlap},
         .loop = small_model,
         .after_step = [&](int worker, const StepReport& report, OuterStrategy&, QuadraticLoop&) {
           const std::lock_guard lock(mutex);
           for (const RoundReport& round : report.rounds) {
             EXPECT_EQ(round.applied, report.step);
             EXPECT_EQ(round.applied.value() - round.sent.value(), c.overlap);
             rounds[static_cast<std::size_t>(worker)].push_back(round.sent.value() * F +
                                                                round.fragment.value());
           }
         }});
    std::vector<std::int64_t> expected;  // offsets floor(p H / F), t from 1
    for (std::int64_t t = 1; t + c.overlap <= kSteps; ++t) {
      for (std::int64_t p = 0; p < F; ++p) {
        if (t % c.H == p * c.H / F) expected.push_back(t * F + p);
      }
    }
    EXPECT_EQ(rounds[0], expected) << "H " << c.H << " overlap " << c.overlap;
    EXPECT_EQ(rounds[1], expected) << "H " << c.H << " overlap " << c.overlap;
  }
}

TEST(FinalSync, DrainAppliesWhatIsInFlightAndNoneDropsIt) {
  const auto run = [](FinalSync final_sync) {
    return run_family({.workers = 2,
                       .steps = 9,
                       .method = "streaming-diloco",
                       .outer = {.H = 4, .overlap = 3, .final_sync = final_sync},
                       .loop = small_model});
  };
  const auto uninterrupted = [](int steps) {
    std::vector<float> anchors;
    run_family(
        {.workers = 2,
         .steps = steps,
         .method = "streaming-diloco",
         .outer = {.H = 4, .overlap = 3},
         .loop = small_model,
         .after_step = [&](int worker, const StepReport&, OuterStrategy& s, QuadraticLoop& loop) {
           if (worker == 0) anchors = anchors_of(s, loop);
         }});
    return anchors;
  };
  EXPECT_EQ(run(FinalSync::kNone), uninterrupted(7));    // the sync of step 4
  EXPECT_EQ(run(FinalSync::kDrain), uninterrupted(11));  // and the one of step 8, applied at 11
}

TEST(FinalSync, FullSyncsWhatHasMovedSinceItsLastSend) {
  std::array<std::vector<float>, 2> local;
  std::array<std::vector<RoundReport>, 2> rounds;
  run_in_process(2, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    QuadraticLoop inner(small_model(context.rank.value()));
    const auto strategy = make_outer_strategy("streaming-diloco",
                                              {.H = 4,
                                               .fragments = 2,
                                               .offsets = std::vector<std::int64_t>{0, 1, 2},
                                               .alpha = 0.0,
                                               .final_sync = FinalSync::kFull},
                                              inner, context.exchange);
    for (int t = 1; t <= 10; ++t) {
      (void)strategy->step();
    }
    rounds[w] = strategy->finish();
    local[w] = inner.all();
    EXPECT_TRUE(strategy->finish().empty());
  });
  ASSERT_EQ(rounds[0].size(), 2u);  // fragment 2 was sent at step 10
  EXPECT_EQ(rounds[0][0].fragment, FragmentId(0));
  EXPECT_EQ(rounds[0][1].fragment, FragmentId(1));
  EXPECT_EQ(rounds[0][1].sent, StepIndex(10));
  EXPECT_EQ(local[0], local[1]);
}

TEST(Reports, RoundsCarrySendAndApplyStepsAndBytes) {
  run_family({.workers = 2,
              .steps = 6,
              .method = "streaming-diloco",
              .outer = {.H = 4, .overlap = 1, .alpha = 0.0},
              .loop = small_model,
              .after_step = [](int, const StepReport& report, OuterStrategy&, QuadraticLoop&) {
                ASSERT_EQ(report.rounds.size(), report.step == StepIndex(5) ? 1u : 0u);
                for (const RoundReport& round : report.rounds) {
                  EXPECT_EQ(round.sent, StepIndex(4));
                  EXPECT_EQ(round.applied, StepIndex(5));
                  EXPECT_EQ(round.members, 2);
                  EXPECT_EQ(round.payload_bytes, 11098u * 4);
                  EXPECT_GT(round.delta_norm, 0);
                }
              }});
}

TEST(Buckets, HoldEveryElementOnceInBackwardOrderWhateverTheSizes) {
  for (const std::size_t capacity : {1u, 7u, 10u, 100u, 4096u, 1000000u}) {
    // Tensors of 6 and 6 with capacity 10 are the trap of a well-known bucketiser: its tail was
    // lost.
    const QuadraticLoop loop({.tensors = {{0, 6}, {0, 6}, {0, 1}, {0, 250}, {0, 13}}});
    std::vector<std::vector<int>> seen;
    for (const Parameter& parameter : loop.parameters()) {
      seen.emplace_back(parameter.values.size());
    }
    const std::vector<outer::Bucket> buckets = outer::make_buckets(loop.parameters(), capacity);
    std::size_t last = loop.parameters().size();
    for (std::size_t k = 0; k < buckets.size(); ++k) {
      EXPECT_EQ(buckets[k].values, k + 1 < buckets.size() ? capacity : buckets[k].values);
      EXPECT_LE(buckets[k].values, capacity);
      for (const outer::Slice& slice : buckets[k].slices) {
        EXPECT_LE(slice.parameter, last);
        last = slice.parameter;
        for (std::size_t i = slice.begin; i < slice.begin + slice.size; ++i) {
          ++seen[slice.parameter][i];
        }
      }
    }
    for (const std::vector<int>& tensor : seen) {
      EXPECT_EQ(tensor, std::vector<int>(tensor.size(), 1)) << "capacity " << capacity;
    }
  }
}

TEST(Ddp, BucketsAndAnnouncementsDoNotChangeTheResult) {
  const auto run = [](std::size_t capacity, bool announce) {
    std::vector<float> result;
    run_in_process(3, [&](WorkerContext& context) {
      QuadraticLoop::Options options = small_model(context.rank.value());
      options.announce = announce;
      QuadraticLoop inner(options);
      outer::Ddp strategy(methods().front(), {.exchange = ReductionKind::kGather}, inner,
                          context.exchange, capacity);
      for (int t = 1; t <= 35; ++t) {  // commits after 16, 32 and at the end
        (void)strategy.step();
      }
      (void)strategy.finish();
      if (context.rank == WorkerId(0)) {
        result = inner.all();
      }
    });
    return result;
  };
  const std::vector<float> expected = run(1000000, true);
  EXPECT_EQ(expected, run(1000, true));
  EXPECT_EQ(expected, run(4096, false));
}

TEST(Ddp, FollowsANaiveLoopOverTheMeanGradient) {
  constexpr int kWorkers = 3;
  const std::vector<float> ours =
      run_family({.workers = kWorkers, .steps = 5, .method = "ddp", .loop = small_model});
  std::vector<QuadraticLoop> loops;
  for (int w = 0; w < kWorkers; ++w) {
    loops.emplace_back(small_model(w));
  }
  for (int t = 1; t <= 5; ++t) {
    for (QuadraticLoop& loop : loops) {
      (void)loop.gradients(StepIndex(t), {});
    }
    for (std::size_t i = 0; i < loops[0].parameters().size(); ++i) {
      for (std::size_t k = 0; k < loops[0].gradient(i).size(); ++k) {
        float mean = 0;
        for (QuadraticLoop& loop : loops) {
          mean += loop.gradient(i)[k];
        }
        mean /= kWorkers;
        for (QuadraticLoop& loop : loops) {
          loop.gradient(i)[k] = mean;
        }
      }
    }
    for (QuadraticLoop& loop : loops) {
      (void)loop.apply_gradients(StepIndex(t));
    }
  }
  EXPECT_EQ(ours, loops[0].all());
}

TEST(Methods, ListTheirKeysAndSources) {
  for (const MethodInfo& method : methods()) {
    EXPECT_FALSE(method.summary.empty());
    EXPECT_FALSE(method.source.empty());
    EXPECT_FALSE(method.keys.empty());
  }
}

}  // namespace
}  // namespace isthmus::this_file
