// SPDX-License-Identifier: Apache-2.0
// Method decoupled in virtual time: what it equals, what each offer weighs, and what holds for any
// speeds (docs/guarantees/decoupled.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/base/rng.h"
#include "outer/decoupled_run.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing_support::DecoupledRun;
using testing_support::LearnerRecord;
using testing_support::QuadraticLoop;
using testing_support::run_decoupled;

constexpr Duration kLong = std::chrono::hours(1);

QuadraticLoop::Options small_loop(int worker) {
  return {.tensors = {{kNoLayer, 500}, {0, 4300}, {1, 700}, {2, 1}},
          .center = 0.25f * static_cast<float>(worker),
          .noise = 0.5f,
          .worker = worker,
          .tokens = 10};
}

SimulationOptions links(std::uint64_t seed, int workers) {
  SimulationOptions options{.workers = workers, .seed = seed};
  options.links = uniform_links(workers, {.bits_per_s = 100'000'000, .one_way = 20ms});
  return options;
}

/// All workers offer, and each waits for the merge: nobody is ever late.
OuterOptions like_rounds(int workers, OuterOptions outer) {
  outer.merge = {.quorum = workers, .grace = kLong};
  return outer;
}

// ---- What it equals -----------------------------------------------------------------------------

// Equal speeds, a quorum of all, and a wait for each merge leave synchronous DiLoCo, whose mean of
// three workers is encoded again as a merge is. Twelve steps end in the middle of a window.
TEST(Decoupled, WithAllWorkersAndEqualSpeedsIsDiLoCoBitForBit) {
  for (const std::string codec : {"fp32", "int8:256", "int4:ef"}) {
    DecoupledRun run{.workers = 3,
                     .steps = 12,
                     .outer = like_rounds(3, {.H = 5, .codec = codec}),
                     .loop = small_loop,
                     .step_time = [](int, std::int64_t) { return Duration(100ms); },
                     .simulation = links(1, 3)};
    const std::vector<LearnerRecord> decoupled = run_decoupled(run);
    run.method = "diloco";
    run.outer.merge = {};
    const std::vector<LearnerRecord> diloco = run_decoupled(run);
    for (std::size_t m = 0; m < 3; ++m) {
      EXPECT_TRUE(decoupled[m].anchors == diloco[m].anchors) << codec << ", worker " << m;
      EXPECT_TRUE(decoupled[m].local == diloco[m].local) << codec << ", worker " << m;
      EXPECT_EQ(decoupled[m].idle_steps, 0);
    }
  }
}

TEST(Decoupled, WithFragmentsInTurnIsStreamingDiLoCoWithoutOverlap) {
  DecoupledRun run{.workers = 3,
                   .steps = 17,
                   .outer = like_rounds(3, {.H = 6, .lr = 0.4, .fragments = 2}),
                   .loop = small_loop,
                   .step_time = [](int, std::int64_t) { return Duration(100ms); },
                   .simulation = links(1, 3)};
  const std::vector<LearnerRecord> decoupled = run_decoupled(run);
  run.method = "streaming-diloco";
  run.outer.merge = {};
  run.outer.alpha = 0;
  const std::vector<LearnerRecord> streaming = run_decoupled(run);
  for (std::size_t m = 0; m < 3; ++m) EXPECT_TRUE(decoupled[m].anchors == streaming[m].anchors);
}

TEST(Decoupled, OneWorkerIsDiLoCoOfOneWorker) {
  DecoupledRun run{
      .workers = 1, .steps = 13, .outer = like_rounds(1, {.H = 5}), .loop = small_loop};
  const std::vector<LearnerRecord> decoupled = run_decoupled(run);
  run.method = "diloco";
  run.outer.merge = {};
  EXPECT_EQ(decoupled[0].anchors, run_decoupled(run)[0].anchors);
}

// ---- What an offer weighs -----------------------------------------------------------------------

// f = 1/2 (x - c)^2 by SGD: H steps take x to c + (1 - lr)^H (x - c). Worker 0 takes 4 steps of 10
// tokens until worker 1 has taken 2 of 30: weights 40 * 10 and 60 * 30.
TEST(Decoupled, WeighsTokensTimesTokensAStep) {
  DecoupledRun run{
      .workers = 2,
      .steps = 4,
      .outer = like_rounds(2, {.H = 4, .lr = 1, .momentum = 0}),
      .loop =
          [](int worker) {
            return QuadraticLoop::Options{
                .start = 2, .center = worker == 0 ? 1.0f : -3.0f, .tokens = worker == 0 ? 10 : 30};
          },
      .step_time = [](int worker, std::int64_t) { return Duration(worker == 0 ? 100ms : 170ms); },
      .simulation = links(1, 2)};
  run.outer.merge = {.quorum = 1, .grace = 400ms};  // worker 1 is at step 4 within the window
  const auto after = [](double c, int steps) { return c + std::pow(0.9, steps) * (2 - c); };
  const std::vector<LearnerRecord> all = run_decoupled(run);
  ASSERT_FALSE(all[0].merges.merges.empty());
  const Merge& first = all[0].merges.merges.front();
  ASSERT_EQ(first.offers.size(), 2U);
  EXPECT_EQ(first.offers[0].weight, 40.0 * 10);
  EXPECT_EQ(first.offers[1].weight, 120.0 * 30);
  const double expected = (400 * after(1, 4) + 3600 * after(-3, 4)) / 4000;
  EXPECT_NEAR(all[0].anchors[0], expected, 1e-6);
  EXPECT_EQ(all[0].anchors, all[1].anchors);
}

// Worker 1 is so slow that it skips steps: its offer weighs the steps that it took.
TEST(Decoupled, AnOfferWeighsTheStepsThatWereTaken) {
  DecoupledRun run{
      .workers = 2,
      .steps = 8,
      .outer = {.H = 4, .lr = 1, .momentum = 0},
      .loop = [](int) { return QuadraticLoop::Options{.tokens = 10}; },
      .step_time = [](int worker, std::int64_t) { return Duration(worker == 0 ? 100ms : 390ms); },
      .simulation = links(1, 2)};
  const std::vector<LearnerRecord> all = run_decoupled(run);
  // Worker 0 offers at 0.4 s; worker 1, in its second step then, takes the merge at 0.78 s.
  EXPECT_EQ(all[1].merges.offers.front().tokens, 20);
  EXPECT_EQ(all[1].merges.offers.front().weight, 20.0 * 10);
  EXPECT_EQ(all[1].merges.offers.front().id.sent, StepIndex(4));
  EXPECT_GT(all[1].idle_steps, 0);
}

// ---- What holds for any speeds ------------------------------------------------------------------

struct Straggling {
  std::uint64_t seed = 0;
  Rng rng{seed, Stream::kTestData};
  [[nodiscard]] double draw(int worker, std::int64_t step, std::uint32_t what) const {
    return rng.uniform(static_cast<std::uint64_t>(worker) * 1000 + static_cast<std::uint64_t>(step),
                       what);
  }
  /// Each worker has a speed of its own, and some steps take several times as long.
  [[nodiscard]] Duration step(int worker, std::int64_t t) const {
    const double pace = 1 + 3 * draw(worker, 0, 1);
    const double hiccup = draw(worker, t, 2) < 0.1 ? 4 : 1;
    return Duration(static_cast<Duration::rep>(1e8 * pace * hiccup));
  }
  [[nodiscard]] Duration pause(int worker, std::int64_t t) const {
    return draw(worker, t, 3) < 0.03 ? Duration(5s) : Duration{0};
  }
};

DecoupledRun straggling(std::uint64_t seed, const MergeRule& rule) {
  const Straggling speeds{.seed = seed};
  DecoupledRun run{.workers = 4,
                   .steps = 60,
                   .outer = {.H = 8, .lr = 0.5, .momentum = 0.6, .fragments = 2, .merge = rule},
                   .loop = small_loop,
                   .simulation = links(seed, 4)};
  run.step_time = [speeds](int worker, std::int64_t t) { return speeds.step(worker, t); };
  run.pause = [speeds](int worker, std::int64_t t) { return speeds.pause(worker, t); };
  run.simulation.world.shuffle = true;
  return run;
}

/// Offers and merges, told apart by worker, fragment and step.
using OfferKey = std::tuple<int, int, std::int64_t>;

/// Every offer is in one merge, every merge is at every worker, and the tokens agree.
void expect_each_offer_merged_once(const std::vector<LearnerRecord>& all, std::uint64_t seed) {
  std::map<OfferKey, std::int64_t> offered, merged;
  std::map<int, std::int64_t> tokens_by_fragment;
  for (std::size_t m = 0; m < all.size(); ++m) {
    for (const Offer& offer : all[m].merges.offers) {
      const OfferKey key{static_cast<int>(m), offer.id.fragment.value(), offer.id.sent.value()};
      EXPECT_TRUE(offered.emplace(key, offer.tokens).second) << "seed " << seed;
    }
  }
  for (const Merge& merge : all[0].merges.merges) {
    for (const MergedOffer& offer : merge.offers) {
      const OfferKey key{offer.worker.value(), merge.fragment.value(), offer.sent.value()};
      EXPECT_TRUE(merged.emplace(key, offer.tokens).second) << "twice, seed " << seed;
      tokens_by_fragment[merge.fragment.value()] += offer.tokens;
      EXPECT_LE(offer.sent, merge.step);
    }
  }
  EXPECT_EQ(merged, offered) << "seed " << seed;
  std::int64_t trained = 0;
  for (const LearnerRecord& record : all) trained += record.tokens;
  for (const auto& [fragment, tokens] : tokens_by_fragment) {
    EXPECT_EQ(tokens, trained) << "fragment " << fragment << ", seed " << seed;
  }
  for (std::size_t m = 1; m < all.size(); ++m) {
    ASSERT_EQ(all[m].merges.merges.size(), all[0].merges.merges.size()) << "seed " << seed;
    for (std::size_t i = 0; i < all[0].merges.merges.size(); ++i) {
      const Merge& mine = all[m].merges.merges[i];
      const Merge& first = all[0].merges.merges[i];
      EXPECT_EQ(mine.number, static_cast<std::int64_t>(i) + 1);
      EXPECT_EQ(mine.offers, first.offers);
      EXPECT_TRUE(mine.values == first.values) << "seed " << seed;
    }
    EXPECT_TRUE(all[m].anchors == all[0].anchors) << "seed " << seed;
  }
  for (const LearnerRecord& record : all) EXPECT_TRUE(record.local == record.anchors);
}

/// The anchors by the recorded merges alone: means of the decoded offers in fp64, then Nesterov.
std::vector<float> replayed(const std::vector<LearnerRecord>& all, const DecoupledRun& run) {
  QuadraticLoop loop(run.loop(0));
  const std::vector<float> start = loop.all();
  std::vector<double> anchor(start.begin(), start.end());
  std::vector<double> momentum(anchor.size());
  const std::vector<Fragment> fragments =
      make_fragments(loop.parameters(), run.outer.fragments, run.outer.pattern, false);
  for (const Merge& merge : all[0].merges.merges) {
    std::vector<double> mean(merge.values.size());
    double weights = 0;
    for (const MergedOffer& merged : merge.offers) {
      const auto& offers = all[index(merged.worker)].merges.offers;
      const auto offer = std::ranges::find_if(offers, [&](const Offer& each) {
        return each.id == SyncId{merge.fragment, merged.sent};
      });
      std::vector<float> decoded(offer->encoded.values);
      EXPECT_TRUE(decode(*offer->codec, offer->encoded.bytes, decoded).has_value());
      for (std::size_t i = 0; i < mean.size(); ++i) {
        mean[i] += offer->weight * static_cast<double>(decoded[i]);
      }
      weights += offer->weight;
    }
    std::size_t at = 0;
    for (const std::size_t parameter : fragments[index(merge.fragment)].parameters) {
      const CanonicalRange elements = loop.parameters()[parameter].elements;
      for (std::int64_t e = elements.begin; e < elements.end; ++e, ++at) {
        const auto i = static_cast<std::size_t>(e);
        const double gradient = mean[at] / weights;
        momentum[i] = *run.outer.momentum * momentum[i] + gradient;
        anchor[i] -= *run.outer.lr * (gradient + *run.outer.momentum * momentum[i]);
      }
    }
  }
  return {anchor.begin(), anchor.end()};
}

// Twenty seeds of stragglers, with grace windows of a fixed length and of a quarter of a window.
TEST(Decoupled, MergesEveryOfferOnceAndNobodyWaitsLongerThanTheGraceWindow) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (const MergeRule rule :
         {MergeRule{.quorum = 1}, MergeRule{.quorum = 3}, MergeRule{.quorum = 2, .grace = 300ms}}) {
      const DecoupledRun run = straggling(seed, rule);
      const std::vector<LearnerRecord> all = run_decoupled(run);
      expect_each_offer_merged_once(all, seed);
      const std::vector<float> expected = replayed(all, run);
      for (std::size_t i = 0; i < expected.size(); i += 97) {
        EXPECT_NEAR(all[0].anchors[i], expected[i], 2e-5) << "seed " << seed;
      }
      for (const LearnerRecord& record : all) {
        Duration longest{0};
        for (const RoundReport& round : record.rounds) longest = std::max(longest, round.waited);
        EXPECT_LE(longest, rule.grace.value_or(Duration{0})) << "seed " << seed;
        EXPECT_TRUE(rule.grace || record.waits_in_training == 0) << "seed " << seed;
        EXPECT_LE(record.longest_wait, rule.grace.value_or(Duration{0})) << "seed " << seed;
      }
    }
  }
}

TEST(Decoupled, ASimulationRepeatsItsBitsAndItsTimes) {
  SimulationResult first, second;
  const std::vector<LearnerRecord> one = run_decoupled(straggling(7, {}), &first);
  const std::vector<LearnerRecord> two = run_decoupled(straggling(7, {}), &second);
  EXPECT_EQ(first.trace_hash, second.trace_hash);
  EXPECT_EQ(first.duration, second.duration);
  for (std::size_t m = 0; m < one.size(); ++m) EXPECT_EQ(one[m].anchors, two[m].anchors);
}

/// Three workers with steps of 100 ms and offers after every fifth.
DecoupledRun three_workers(std::int64_t steps, std::uint64_t seed) {
  return {.workers = 3,
          .steps = steps,
          .outer = {.H = 5},
          .loop = small_loop,
          .step_time = [](int, std::int64_t) { return Duration(100ms); },
          .simulation = links(seed, 3)};
}

// A worker that stands still for a minute costs the others no time: each takes as long as its own
// steps take. DiLoCo's rounds wait for it.
TEST(Decoupled, AWorkerThatStandsStillIsNotWaitedFor) {
  DecoupledRun run = three_workers(40, 1);
  run.pause = [](int worker, std::int64_t t) {
    return worker == 2 && t == 7 ? Duration(60s) : Duration{0};
  };
  const std::vector<LearnerRecord> all = run_decoupled(run);
  for (const int m : {0, 1}) {
    EXPECT_EQ(all[static_cast<std::size_t>(m)].training, 40 * Duration(100ms));
    EXPECT_EQ(all[static_cast<std::size_t>(m)].idle_steps, 0);
  }
  EXPECT_GE(all[2].idle_steps, 30) << "it is where the others are";
  expect_each_offer_merged_once(all, 0);
  run.method = "diloco";
  EXPECT_GT(run_decoupled(run)[0].training, 60s);
}

QuadraticLoop::Options layers_loop(int layers) {
  QuadraticLoop::Options options{.tensors = {}, .tokens = 10};
  for (int layer = 0; layer < layers; ++layer) options.tensors.push_back({layer, 8});
  return options;
}

// A worker of half the speed is behind a merge after every step that it trains. A fragment that is
// due then is offered when the worker has caught up, from a saved state too.
TEST(Decoupled, AWorkerThatIsAlwaysBehindOffersEveryFragment) {
  constexpr int kLayers = 24;
  DecoupledRun run{
      .workers = 2,
      .steps = 240,
      .outer = {.H = kLayers, .fragments = kLayers},
      .loop = [](int) { return layers_loop(kLayers); },
      .step_time = [](int worker, std::int64_t) { return Duration(worker == 0 ? 1s : 2s); },
      .simulation = links(1, 2)};
  const auto expect_all_offered = [](const LearnerRecord& slow, int least) {
    std::vector<int> offers(kLayers);
    for (std::size_t i = 0; i < slow.offers_in_training; ++i) {
      ++offers.at(index(slow.merges.offers[i].id.fragment));
    }
    for (int p = 0; p < kLayers; ++p) {
      EXPECT_GE(offers[static_cast<std::size_t>(p)], least) << "fragment " << p;
    }
  };
  run.save_after = 100;
  std::vector<LearnerRecord> before = run_decoupled(run);
  expect_each_offer_merged_once(before, 0);
  expect_all_offered(before[1], 9);
  run.save_after = 0;
  run.from = &before;
  expect_all_offered(run_decoupled(run)[1], 5);
}

// One grace window for all offers of a step, whose merges are waited for together.
TEST(Decoupled, TheOffersOfAStepAreWaitedForTogether) {
  DecoupledRun run{.workers = 2,
                   .steps = 40,
                   .outer = {.H = 8, .fragments = 8},
                   .loop = [](int) { return layers_loop(8); },
                   .step_time = [](int, std::int64_t) { return Duration(1s); },
                   .simulation = links(1, 2)};
  run.outer.offsets = OffsetsZero{};
  run.outer.merge = {.quorum = 2, .grace = 5s};
  run.pause = [](int worker, std::int64_t t) {
    return worker == 1 && t == 4 ? Duration(300s) : Duration{0};
  };
  const std::vector<LearnerRecord> all = run_decoupled(run);
  EXPECT_EQ(all[0].longest_wait, Duration(5s));
  Duration told{0};
  for (const RoundReport& round : all[0].rounds) told += round.waited;
  Duration waited{0};
  for (std::size_t i = 0; i < all[0].waits_in_training; ++i) waited += all[0].merges.waits[i];
  EXPECT_EQ(told, waited) << "each wait is told of once";
}

// A worker that comes late takes the merges that were made meanwhile, in their order.
TEST(Decoupled, ALateJoinerTakesThePastMergesAndGoesOnWhereTheOthersAre) {
  DecoupledRun run = three_workers(60, 1);
  run.pause = [](int worker, std::int64_t t) {
    return worker == 1 && t == 1 ? Duration(3s) : Duration{0};
  };
  const std::vector<LearnerRecord> all = run_decoupled(run);
  expect_each_offer_merged_once(all, 0);
  EXPECT_NEAR(static_cast<double>(all[1].idle_steps), 30, 6);
  EXPECT_GT(all[1].tokens, 200) << "half of the run is its own";
  EXPECT_EQ(all[0].training, 60 * Duration(100ms));
}

// ---- Goodput ------------------------------------------------------------------------------------

// M learners that each fail at 1/M of the rate of all chips, while they work, and then stand still:
// the goodput of experiments/goodput, 1 / (1 + r s / M), which rests on learners that wait for
// nobody. Rounds that wait for all lose what one system of all chips loses.
TEST(Decoupled, GoodputIsThatOfLearnersThatFailAlone) {
  constexpr double kStep = 2, kRate = 1 / 26.3, kStall = 17.6;  // seconds
  constexpr int kSteps = 1500;
  for (const int learners : {2, 4, 8}) {
    double goodput = 0, waiting = 0;
    constexpr std::uint64_t kSeeds = 3;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const double fails = 1 - std::exp(-kRate / learners * kStep);
      DecoupledRun run{.workers = learners,
                       .steps = kSteps,
                       .outer = {.H = 12},
                       .loop =
                           [](int worker) {
                             return QuadraticLoop::Options{.tensors = {{0, 8}}, .worker = worker};
                           },
                       .step_time = [](int, std::int64_t) { return Duration(2s); },
                       .simulation = links(seed, learners)};
      run.stall = [&](int worker, std::int64_t t) {
        const Straggling draws{.seed = seed};
        return draws.draw(worker, t, 4) < fails ? Duration(static_cast<Duration::rep>(kStall * 1e9))
                                                : Duration{0};
      };
      SimulationResult result;
      const std::vector<LearnerRecord> all = run_decoupled(run, &result);
      for (const LearnerRecord& record : all) {
        goodput += in_seconds(record.computed) / in_seconds(result.duration) / learners / kSeeds;
      }
      if (learners == 8) {
        run.method = "diloco";
        (void)run_decoupled(run, &result);
        waiting += kSteps * kStep / in_seconds(result.duration) / kSeeds;
      }
    }
    // The spread over the seeds of one learner's share is about 0.02.
    EXPECT_NEAR(goodput, 1 / (1 + kRate * kStall / learners), 0.03) << learners << " learners";
    EXPECT_TRUE(learners < 8 || waiting < goodput - 0.2) << waiting;
  }
}

// ---- Faults -------------------------------------------------------------------------------------

// Of a worker that dies, what it has offered counts once and the rest is lost; the others go on.
TEST(Decoupled, TheOthersGoOnWhereAWorkerDies) {
  for (const Duration moment : {50ms, 500ms, 501ms, 525ms, 545ms, 1777ms, 4100ms}) {
    DecoupledRun run = three_workers(40, 3);
    run.simulation.network.faults.crashes = {{WorkerId(2), TimePoint(moment)}};
    SimulationResult result;
    const std::vector<LearnerRecord> all = run_decoupled(run, &result);
    ASSERT_EQ(result.crashed, std::vector<WorkerId>{WorkerId(2)});
    EXPECT_EQ(all[0].anchors, all[1].anchors);
    EXPECT_EQ(all[0].training, 40 * Duration(100ms));
    std::set<OfferKey> merged;
    std::int64_t tokens = 0;
    for (const Merge& merge : all[0].merges.merges) {
      for (const MergedOffer& offer : merge.offers) {
        EXPECT_TRUE(merged.emplace(offer.worker.value(), 0, offer.sent.value()).second);
        if (offer.worker != WorkerId(2)) tokens += offer.tokens;
      }
    }
    EXPECT_EQ(tokens, all[0].tokens + all[1].tokens) << in_seconds(moment);
  }
}

TEST(Decoupled, WithoutTheCoordinatorTheRunEnds) {
  for (const Duration moment : {50ms, 500ms, 545ms, 1777ms}) {
    DecoupledRun run = three_workers(40, 3);
    run.simulation.network.faults.crashes = {{WorkerId(0), TimePoint(moment)}};
    try {
      (void)run_decoupled(run);
      ADD_FAILURE() << in_seconds(moment);
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), HasSubstr("is gone"));
    }
  }
}

// Work with a value that is not finite is dropped and named, and no other worker sees it.
TEST(Decoupled, WorkThatIsNotFiniteIsDropped) {
  DecoupledRun run{.workers = 2,
                   .steps = 20,
                   .outer = like_rounds(2, {.H = 5}),
                   .loop =
                       [](int worker) {
                         QuadraticLoop::Options options = small_loop(worker);
                         options.poisoned_step = worker == 1 ? 8 : 0;
                         options.poison = [](std::span<float> values) { values[3] = NAN; };
                         return options;
                       },
                   .step_time = [](int, std::int64_t) { return Duration(100ms); },
                   .simulation = links(1, 2)};
  run.outer.merge.quorum = 1;
  run.outer.merge.grace = 200ms;
  const std::vector<LearnerRecord> all = run_decoupled(run);
  EXPECT_TRUE(std::ranges::all_of(all[0].anchors, [](float x) { return std::isfinite(x); }));
  EXPECT_EQ(all[0].anchors, all[1].anchors);
  std::int64_t tokens = 0;
  for (const Offer& offer : all[1].merges.offers) tokens += offer.tokens;
  EXPECT_EQ(tokens, all[1].tokens - 50) << "the second window";
}

// ---- Checkpoints --------------------------------------------------------------------------------

// States of one step are of unlike moments. A run that goes on from them merges every token that
// was trained up to the step, or after it, once.
TEST(Decoupled, AResumedRunMergesEveryTokenOnce) {
  int unlike = 0;  // seeds whose workers have not all applied the same merges
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    DecoupledRun run = straggling(seed, {.quorum = 2});
    run.outer.fragments = 1;
    run.save_after = 21 + static_cast<std::int64_t>(seed % 7);
    std::vector<LearnerRecord> before = run_decoupled(run);
    run.save_after = 0;
    run.from = &before;
    const std::vector<LearnerRecord> after = run_decoupled(run);
    const auto applied = [](LearnerRecord& record) { return record.saved.integer("merges"); };
    unlike += std::ranges::any_of(
        before, [&](LearnerRecord& record) { return applied(record) != applied(before[0]); });
    LearnerRecord& ahead = *std::ranges::max_element(
        before, {}, [&](LearnerRecord& record) { return applied(record); });
    std::int64_t merged = 0;
    std::set<OfferKey> once;
    const auto count = [&](const Merge& merge) {
      for (const MergedOffer& offer : merge.offers) {
        merged += offer.tokens;
        EXPECT_TRUE(once.emplace(offer.worker.value(), 0, offer.sent.value()).second)
            << "seed " << seed;
      }
    };
    // The merges that some state holds.
    for (std::size_t i = 0; i < static_cast<std::size_t>(applied(ahead)); ++i) {
      count(ahead.merges.merges.at(i));
    }
    for (const Merge& merge : after[0].merges.merges) count(merge);
    std::int64_t trained = 0;
    for (std::size_t m = 0; m < after.size(); ++m)
      trained += before[m].saved_tokens + after[m].tokens;
    EXPECT_EQ(merged, trained) << "seed " << seed;
    for (const LearnerRecord& record : after) {
      EXPECT_TRUE(record.anchors == after[0].anchors) << "seed " << seed;
      EXPECT_TRUE(record.local == record.anchors) << "seed " << seed;
    }
  }
  EXPECT_GT(unlike, 5);
}

// What an offer holds is the work of its tokens, no more and no less, after a resume too: each step
// of worker m moves its values by m + 1 hundredths.
TEST(Decoupled, AnOfferHoldsTheWorkOfItsTokens) {
  constexpr float kStep = 0.01f;
  const auto expect_whole = [](const std::vector<LearnerRecord>& all, std::uint64_t seed) {
    for (std::size_t m = 0; m < all.size(); ++m) {
      for (const Offer& offer : all[m].merges.offers) {
        std::vector<float> work(offer.encoded.values);
        ASSERT_TRUE(decode(*offer.codec, offer.encoded.bytes, work).has_value());
        const float expected = kStep * static_cast<float>(m + 1) * static_cast<float>(offer.tokens);
        EXPECT_NEAR(work.front(), expected, 1e-4) << "worker " << m << ", seed " << seed;
        EXPECT_NEAR(work.back(), expected, 1e-4) << "worker " << m << ", seed " << seed;
      }
    }
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    DecoupledRun run = straggling(seed, {.quorum = 2});
    run.loop = [](int) { return QuadraticLoop::Options{.tensors = {{0, 40}, {1, 70}}}; };
    run.drift = kStep;
    run.save_after = 21 + static_cast<std::int64_t>(seed);
    std::vector<LearnerRecord> before = run_decoupled(run);
    run.save_after = 0;
    run.from = &before;
    expect_whole(before, seed);
    expect_whole(run_decoupled(run), seed);
    run.forgets = true;
    expect_whole(run_decoupled(run), seed);
  }
}

// Where all are at one step at one moment, a resumed run is the run itself.
TEST(Decoupled, AResumedRunOfEqualSpeedsIsTheRunItself) {
  for (const std::int64_t step : {7, 10, 12}) {
    DecoupledRun run{.workers = 3,
                     .steps = 20,
                     .outer = like_rounds(3, {.H = 5, .codec = "int4:ef"}),
                     .loop = small_loop,
                     .step_time = [](int, std::int64_t) { return Duration(100ms); },
                     .simulation = links(1, 3)};
    const std::vector<LearnerRecord> whole = run_decoupled(run);
    run.save_after = step;
    std::vector<LearnerRecord> before = run_decoupled(run);
    run.save_after = 0;
    run.from = &before;
    const std::vector<LearnerRecord> after = run_decoupled(run);
    for (std::size_t m = 0; m < 3; ++m) EXPECT_TRUE(after[m].anchors == whole[m].anchors);
  }
}

// ---- Refusals -----------------------------------------------------------------------------------

TEST(Decoupled, RefusesAQuorumOfMoreThanAllWorkers) {
  run_in_process(2, [](WorkerContext& context) {
    QuadraticLoop inner(small_loop(context.rank.value()));
    try {
      (void)make_outer_strategy("decoupled", {.merge = {.quorum = 3}}, inner, context.exchange);
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("outer.quorum = 3: must be at most the 2 workers"));
    }
  });
}

// In real time a worker that is lost has ended with an error, which is the run's.
TEST(Decoupled, AThreadThatEndsWithAnErrorEndsTheRun) {
  try {
    run_in_process(3, [&](WorkerContext& context) {
      QuadraticLoop inner(small_loop(context.rank.value()));
      const auto strategy = make_outer_strategy("decoupled", {.H = 3}, inner, context.exchange);
      for (int t = 0; t < 1'000'000; ++t) {
        (void)strategy->step();
        if (t == 20 && context.rank == WorkerId(1)) throw RunError("its own");
      }
    });
    ADD_FAILURE();
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(), "its own");
  }
}

TEST(Decoupled, RunsOnThreadsInRealTime) {
  std::vector<std::vector<float>> anchors(3);
  run_in_process(3, [&](WorkerContext& context) {
    QuadraticLoop inner(small_loop(context.rank.value()));
    const auto strategy = make_outer_strategy("decoupled", {.H = 3}, inner, context.exchange);
    for (int t = 0; t < 50; ++t) (void)strategy->step();
    (void)strategy->finish();
    anchors[index(context.rank)] = testing_support::anchors_of(*strategy, inner);
  });
  EXPECT_EQ(anchors[1], anchors[0]);
  EXPECT_EQ(anchors[2], anchors[0]);
}

}  // namespace
}  // namespace isthmus::this_file
