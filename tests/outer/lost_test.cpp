// SPDX-License-Identifier: Apache-2.0
// Contributions that are not counted: lost on the way, withheld by their worker, or nobody's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "outer/losing_exchange.h"
#include "outer/parts/norm_guard.h"
#include "outer/parts/outer_fragment.h"
#include "outer/parts/settings.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::anchors_of;
using testing_support::Drift;
using testing_support::LosingExchange;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

struct DriftRun {
  std::string method = "diloco";
  OuterOptions outer;
  std::vector<float> rates;
  std::vector<std::set<std::int64_t>> lost;  // by worker: steps after which its send is lost
  int steps = 12;
  std::int64_t tokens = 0;
};
struct DriftResult {
  std::vector<float> anchors;                // of worker 0, after every step and the finish
  std::vector<float> local;                  // of the last worker, after every step
  std::vector<std::vector<double>> weights;  // by worker
};
DriftResult run(const DriftRun& setting) {
  DriftResult result;
  const int workers = static_cast<int>(setting.rates.size());
  result.weights.resize(setting.rates.size());
  run_in_process(workers, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    LosingExchange exchange(context.exchange,
                            w < setting.lost.size() ? setting.lost[w] : std::set<std::int64_t>{});
    Drift inner(setting.rates[w], setting.tokens);
    const auto strategy = make_outer_strategy(setting.method, setting.outer, inner, exchange);
    for (int t = 1; t <= setting.steps; ++t) {
      (void)strategy->step();
      if (w == 0) result.anchors.push_back(strategy->values(0)[0]);
      if (context.rank.value() == workers - 1) result.local.push_back(inner.value());
    }
    (void)strategy->finish();
    if (w == 0) result.anchors.push_back(strategy->values(0)[0]);
    result.weights[w] = exchange.weights;
  });
  return result;
}

constexpr OuterOptions plain_average(LostContribution carry) {
  OuterOptions outer;
  outer.H = 4;
  outer.lr = 1.0;
  outer.momentum = 0.0;
  outer.carry = carry;
  return outer;
}

// Two workers fall by 1 and by 2 a step, so by 4 and 8 a window; worker 1's second window is lost.
TEST(Carry, TheNextContributionHoldsBothWindowsAndWeighsBoth) {
  const DriftResult carried = run({.outer = plain_average(LostContribution::kCarry),
                                   .rates = {1, 2},
                                   .lost = {{}, {8}},
                                   .tokens = 10});
  EXPECT_EQ(carried.anchors[3], -6.0f);
  EXPECT_EQ(carried.anchors[7], -10.0f);  // worker 0's alone
  EXPECT_EQ(carried.local[7], -18.0f);    // anchor, and 8 that nobody has yet
  // (40 * 4 + 80 * 16) / 120 = 12.
  EXPECT_EQ(carried.anchors[11], -22.0f);
  EXPECT_EQ(carried.local[11], -22.0f);
  EXPECT_EQ(carried.weights[0], (std::vector<double>{40, 40, 40}));
  EXPECT_EQ(carried.weights[1], (std::vector<double>{40, 40, 80}));
}

// With SGD(1) a window that is carried gives the anchor of one that came a round late: here the
// only worker's, so that no mean hides it, on a loop whose windows depend on where they start.
TEST(Carry, OfTheOnlyContributorIsAsIfItHadComeOneRoundLate) {
  const auto anchors = [](const std::set<std::int64_t>& lost) {
    std::vector<std::vector<float>> after;
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop::Options options;
      options.tensors = {{0, 3}, {1, 4}};
      options.noise = 0.5f;
      QuadraticLoop inner(options);
      LosingExchange exchange(context.exchange, lost);
      const auto strategy = make_outer_strategy("localsgd", {.H = 4}, inner, exchange);
      for (int t = 1; t <= 12; ++t) {
        (void)strategy->step();
        after.push_back(anchors_of(*strategy, inner));
      }
    });
    return after;
  };
  const auto whole = anchors({});
  const auto late = anchors({8});
  EXPECT_EQ(late[7], whole[3]);  // nobody contributed: no outer step
  for (std::size_t i = 0; i < whole[11].size(); ++i) {
    EXPECT_NEAR(late[11][i], whole[11][i], 4 * 0x1p-23) << i;
  }
}

// One round behind, the lost window rides with the one that is sent next: exactly a round late.
TEST(Carry, OfMethodsOneRoundBehindComesExactlyOneRoundLate) {
  for (const std::string method : {"delayed", "co2"}) {
    const DriftRun whole{.method = method,
                         .outer = plain_average(LostContribution::kCarry),
                         .rates = {1},
                         .steps = 20};
    DriftRun lossy = whole;
    lossy.lost = {{8}};
    const DriftResult expected = run(whole);
    const DriftResult carried = run(lossy);
    EXPECT_EQ(expected.anchors[11], -8.0f);
    EXPECT_EQ(carried.anchors[11], -4.0f) << method;   // its window is missing
    EXPECT_EQ(carried.anchors[15], -12.0f) << method;  // and is here one round later
    EXPECT_EQ(carried.anchors[15], expected.anchors[15]) << method;
    EXPECT_EQ(carried.anchors.back(), expected.anchors.back()) << method;
    EXPECT_EQ(carried.weights[0], (std::vector<double>{4, 4, 8, 4, 4})) << method;
  }
}

// Eager's own anchor has its fresh part already; what the others get late is taken out once.
TEST(Carry, OfEagerComesOneRoundLateAndIsTakenOutOnce) {
  const DriftRun whole{.method = "eager",
                       .outer = plain_average(LostContribution::kCarry),
                       .rates = {1, 1},
                       .steps = 24};
  DriftRun lossy = whole;
  lossy.lost = {{}, {8}};
  const DriftResult expected = run(whole);
  const DriftResult carried = run(lossy);
  // After step 12: worker 0 alone is in the mean, 4 instead of (4 + 4) / 2, and takes all of it
  // out.
  EXPECT_EQ(expected.anchors[7], -6.0f);
  EXPECT_EQ(expected.anchors[11], -10.0f);
  EXPECT_EQ(carried.anchors[11], -8.0f);
  // After step 16 the two windows of worker 1 come together: (4 + 8) / 2 - 4 / 2 + 2.
  EXPECT_EQ(carried.anchors[15], -14.0f);
  EXPECT_EQ(carried.anchors[15], expected.anchors[15]);
  EXPECT_EQ(carried.anchors.back(), expected.anchors.back());
  // Worker 1 has worker 0's second window whole, not half: a mean is divided by its contributors.
  EXPECT_EQ(carried.local.back(), expected.local.back() - 2);
}

TEST(Rollback, TheWindowIsGone) {
  const DriftResult diloco = run(
      {.outer = plain_average(LostContribution::kRollback), .rates = {1, 2}, .lost = {{}, {8}}});
  EXPECT_EQ(diloco.anchors[7], -10.0f);
  EXPECT_EQ(diloco.local[7], -10.0f);  // at the anchor
  EXPECT_EQ(diloco.anchors[11], -16.0f);
  for (const std::string method : {"delayed", "co2"}) {
    const DriftResult behind = run({.method = method,
                                    .outer = plain_average(LostContribution::kRollback),
                                    .rates = {1},
                                    .lost = {{8}},
                                    .steps = 16});
    EXPECT_EQ(behind.anchors[15], -8.0f) << method;  // rounds 1 and 3
  }
  const DriftResult eager = run({.method = "eager",
                                 .outer = plain_average(LostContribution::kRollback),
                                 .rates = {1},
                                 .lost = {{8}},
                                 .steps = 16});
  EXPECT_EQ(eager.anchors.back(), -12.0f);  // all but the second window
}

// The DiLoCo paper's rule: who was dropped goes on from its own values.
TEST(Stay, LocalValuesAreLeftAlone) {
  const DriftResult stayed =
      run({.outer = plain_average(LostContribution::kStay), .rates = {1, 2}, .lost = {{}, {8}}});
  EXPECT_EQ(stayed.local[7], -14.0f);  // -6 - 8
  EXPECT_EQ(stayed.anchors[7], -10.0f);
  // Its next Delta is -10 - (-22) = 12: the 4 of worker 0 are pulled back.
  EXPECT_EQ(stayed.anchors[11], -18.0f);  // -10 - (4 + 12) / 2
}

// torchft's window with mixing, overlap and fragments: carried work is neither lost nor doubled.
TEST(Carry, WithOverlapKeepsWhatIsBeyondTheAnchor) {
  OuterOptions outer = plain_average(LostContribution::kCarry);
  outer.overlap = 2;
  outer.alpha = 0.0;
  const DriftResult carried =
      run({.method = "streaming-diloco", .outer = outer, .rates = {1}, .lost = {{4}}, .steps = 11});
  EXPECT_EQ(carried.local[5], -6.0f);    // nobody contributed: as it was
  EXPECT_EQ(carried.anchors[9], -8.0f);  // sent after step 8, all of it
  EXPECT_EQ(carried.anchors.back(), -9.0f) << "alpha = 0 mixes steps 9 and 10 away";
  EXPECT_EQ(carried.weights[0], (std::vector<double>{4, 8, 3}))
      << "the closing round is of 3 steps";
}

TEST(NobodyContributed, MomentumRests) {
  OuterOptions outer = plain_average(LostContribution::kRollback);
  outer.momentum = 0.5;
  for (const std::string method : {"diloco", "delayed", "co2"}) {
    const auto with =
        run({.method = method, .outer = outer, .rates = {1, 1}, .lost = {{8}, {8}}, .steps = 16});
    const auto without = run({.method = method, .outer = outer, .rates = {1, 1}, .steps = 12});
    EXPECT_EQ(with.anchors.back(), without.anchors.back()) << method;
  }
}

TEST(Weights, AreTokensAndEqualWindowsGiveThePlainMean) {
  // Steps, where the loop counts no tokens.
  const DriftResult steps =
      run({.outer = plain_average(LostContribution::kCarry), .rates = {1, 3}});
  EXPECT_EQ(steps.weights[0], (std::vector<double>{4, 4, 4}));
  EXPECT_EQ(steps.anchors.back(), -24.0f);
  // Workers of unlike batches: (300 * 4 + 100 * 8) / 400 = 5.
  std::vector<float> anchors;
  run_in_process(2, [&](WorkerContext& context) {
    Drift inner(context.rank == WorkerId(0) ? 1.0f : 2.0f, context.rank == WorkerId(0) ? 75 : 25);
    const auto strategy = make_outer_strategy("diloco", plain_average(LostContribution::kCarry),
                                              inner, context.exchange);
    for (int t = 1; t <= 4; ++t) (void)strategy->step();
    if (context.rank == WorkerId(0)) anchors.push_back(strategy->values(0)[0]);
  });
  EXPECT_EQ(anchors, std::vector<float>{-5.0f});
}

// A run is resumed with a lost window still to be carried.
TEST(Carry, SurvivesACheckpoint) {
  for (const std::string method : {"diloco", "delayed", "co2", "streaming-diloco"}) {
    OuterOptions outer = plain_average(LostContribution::kCarry);
    if (method == "streaming-diloco") outer.overlap = 3;
    const std::set<std::int64_t> lost = {8};
    float expected = 0;
    for (const int stop : {0, 8, 9, 11, 12}) {
      MemoryState saved;
      float local = 0;
      float result = 0;
      run_in_process(1, [&](WorkerContext& context) {
        Drift inner(1, 7);
        LosingExchange exchange(context.exchange, lost);
        const auto strategy = make_outer_strategy(method, outer, inner, exchange);
        for (int t = 1; t <= (stop == 0 ? 17 : stop); ++t) (void)strategy->step();
        strategy->save(saved);
        local = inner.value();
        (void)strategy->finish();
        result = strategy->values(0)[0];
      });
      if (stop == 0) {
        expected = result;
        continue;
      }
      run_in_process(1, [&](WorkerContext& context) {
        Drift inner(1, 7);
        LosingExchange exchange(context.exchange, lost);
        const auto strategy = make_outer_strategy(method, outer, inner, exchange);
        inner.parameters()[0].values[0] = local;
        strategy->load(saved);
        for (int t = stop + 1; t <= 17; ++t) (void)strategy->step();
        (void)strategy->finish();
        result = strategy->values(0)[0];
      });
      EXPECT_EQ(result, expected) << method << " stopped after step " << stop;
    }
  }
}

// Worker 1's parameters stop being finite in its second window: it re-adopts the anchors, its
// optimizer starts again, the others never notice more than its absence.
TEST(Poison, NothingNotFiniteReachesAnchorsOrMomentum) {
  for (const std::string method : {"diloco", "streaming-diloco", "delayed", "eager", "co2"}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      int resets = 0;
      run_in_process(3, [&](WorkerContext& context) {
        QuadraticLoop::Options options;
        options.tensors = {{kNoLayer, 40}, {0, 30}, {1, 20}};
        options.noise = 0.5f;
        options.worker = context.rank.value();
        if (context.rank == WorkerId(1)) {
          options.poisoned_step = 7;
          options.poison = [bad](std::span<float> values) { values[3] = bad; };
        }
        QuadraticLoop inner(options);
        OuterOptions outer{.H = 4, .lr = 0.5, .momentum = 0.5, .codec = "int8:256"};
        if (method == "streaming-diloco") {
          outer.fragments = 2;
          outer.overlap = 1;
        }
        const auto strategy = make_outer_strategy(method, outer, inner, context.exchange);
        for (int t = 1; t <= 24; ++t) {
          (void)strategy->step();
          for (const float anchor : anchors_of(*strategy, inner)) {
            ASSERT_TRUE(std::isfinite(anchor)) << method << " step " << t;
          }
        }
        (void)strategy->finish();
        for (const float anchor : anchors_of(*strategy, inner)) ASSERT_TRUE(std::isfinite(anchor));
        for (const float value : inner.all()) ASSERT_TRUE(std::isfinite(value)) << method;
        if (context.rank == WorkerId(1)) resets = inner.resets();
      });
      EXPECT_EQ(resets, 1) << method;
    }
  }
}

// An outer gradient far beyond what this worker has been sending is kept back and its window given
// up; with `outlier = 0` it goes through.
TEST(Poison, AnOutlierIsWithheldOnceThereIsAPast) {
  for (const std::string method : {"diloco", "delayed", "co2"}) {
    const auto run_with = [&](double outlier) {
      std::vector<float> anchors;
      run_in_process(2, [&](WorkerContext& context) {
        QuadraticLoop::Options options;
        options.tensors = {{0, 8}};
        options.lr = 0.01f;
        if (context.rank == WorkerId(1)) {
          options.poisoned_step = 38;
          options.poison = [](std::span<float> values) { values[0] += 1e6f; };
        }
        QuadraticLoop inner(options);
        const auto strategy =
            make_outer_strategy(method, {.H = 4, .lr = 0.5, .momentum = 0.0, .outlier = outlier},
                                inner, context.exchange);
        for (int t = 1; t <= 48; ++t) (void)strategy->step();
        (void)strategy->finish();
        if (context.rank == WorkerId(0)) anchors = anchors_of(*strategy, inner);
      });
      return anchors;
    };
    EXPECT_LT(std::abs(run_with(100)[0]), 2.0f) << method;
    EXPECT_GT(std::abs(run_with(0)[0]), 1e4f) << method;
  }
}

TEST(NormGuard, HasTheLastSixteenNorms) {
  outer::NormGuard guard(1, 10);
  const auto record = [&](int times, double norm) {
    for (int i = 0; i < times; ++i) EXPECT_TRUE(guard.accepts(FragmentId(0), norm));
  };
  record(20, 1);
  record(9, 4);
  record(7, 1);  // of the last sixteen nine are 4, of the last eight but one
  EXPECT_TRUE(guard.accepts(FragmentId(0), 39));
  record(1, 1);  // the second of the nine is out: eight of sixteen are above 1
  EXPECT_FALSE(guard.accepts(FragmentId(0), 39));
}

TEST(NormGuard, ComparesWithTheMedianOfAFullEnoughPast) {
  outer::NormGuard guard(1, 10);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(guard.accepts(FragmentId(0), i == 0 ? 1e6 : 1.0)) << "no past yet";
  }
  EXPECT_TRUE(guard.accepts(FragmentId(0), 9.9));
  EXPECT_FALSE(guard.accepts(FragmentId(0), 10.1));
  EXPECT_FALSE(guard.accepts(FragmentId(0), std::nan("")));
  EXPECT_FALSE(guard.accepts(FragmentId(0), std::numeric_limits<double>::infinity()));
  // What stays large is accepted after half of the past.
  int refused = 0;
  while (!guard.accepts(FragmentId(0), 100)) ++refused;
  EXPECT_LE(refused, 8);
  MemoryState state;
  guard.save(state);
  outer::NormGuard again(1, 10);
  again.load(state);
  EXPECT_EQ(again.accepts(FragmentId(0), 1e5), guard.accepts(FragmentId(0), 1e5));
}

// The advice holds in a program of its own, too, which has no option --resume.
TEST(LostRounds, AContributionOfACheckpointThatDoesNotDecodeNamesWhatToDo) {
  EXPECT_NO_THROW(outer::check_own_contribution({}));
  std::string text;
  try {
    outer::check_own_contribution(Unexpected<DecodeError>(DecodeError{"3 bytes, must be 8"}));
  } catch (const RunError& error) {
    text = error.what();
  }
  EXPECT_EQ(text,
            "checkpoint: the contribution of this worker that was in flight does not decode: 3 "
            "bytes, must be 8; the checkpoint is damaged, go on from an earlier one");
}

// Who links the library has no configuration file, and is told the option of the program.
TEST(LostRounds, ARoundThatIsLateNamesTheOptionOfAProgramToo) {
  std::string text;
  try {
    outer::throw_round_failure(WorkerId(1), "round 3",
                               {.kind = ExchangeError::Kind::kDeadlineExceeded, .what = "late"});
  } catch (const PeerError& error) {
    text = error.what();
  }
  EXPECT_THAT(text, testing::HasSubstr("raise OuterOptions::patience"));
  EXPECT_THAT(text, testing::HasSubstr("net.patience"));
}

}  // namespace
}  // namespace isthmus::this_file
