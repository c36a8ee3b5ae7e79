// SPDX-License-Identifier: Apache-2.0
// delayed, eager, co2: closed forms on two parabolas, a plain reference on a model, equivalences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "outer/methods/co2.h"
#include "outer/naive_round_behind.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::anchors_of;
using testing_support::naive_round_behind;
using testing_support::NaiveOptions;
using testing_support::QuadraticLoop;
using testing_support::run_family;
using testing_support::small_model;
using testing_support::two_parabolas;

// fp32 against decimals printed with seven digits: a few units in the last place of values near 2.
constexpr float kFewUlps = 2e-6f;

/// Every worker's anchors after every H-th step: [round][worker].
using History = std::vector<std::vector<std::vector<float>>>;
History history_of(const std::string& method, const OuterOptions& outer, int workers, int rounds,
                   const std::function<QuadraticLoop::Options(int)>& loop, bool finish = false) {
  History history(static_cast<std::size_t>(rounds),
                  std::vector<std::vector<float>>(static_cast<std::size_t>(workers)));
  if (finish) history.push_back(history.front());
  run_in_process(workers, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    QuadraticLoop inner(loop(context.rank.value()));
    const auto strategy = make_outer_strategy(method, outer, inner, context.exchange);
    for (int t = 1; t <= rounds * static_cast<int>(outer.H); ++t) {
      (void)strategy->step();
      if (t % outer.H == 0) {
        const auto round = static_cast<std::size_t>(t / outer.H - 1);
        history[round][w] = anchors_of(*strategy, inner);
        EXPECT_EQ(inner.all(), history[round][w]) << "a round starts from its anchor";
      }
    }
    const std::vector<RoundReport> last = strategy->finish();
    EXPECT_TRUE(strategy->finish().empty());
    if (finish) {
      EXPECT_EQ(last.size(), method == "diloco" ? 0u : 1u) << "H divides the steps";
      history.back()[w] = anchors_of(*strategy, inner);
      EXPECT_EQ(inner.all(), history.back()[w]);
    }
  });
  return history;
}

std::vector<float> first_values(const History& history, std::size_t worker = 0) {
  std::vector<float> values;
  for (const auto& round : history) values.push_back(round.at(worker).at(0));
  return values;
}

void expect_near(const std::vector<float>& values, const std::vector<float>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], kFewUlps) << "value " << i;
  }
}

// The first round holds; the second applies what DiLoCo's first would have.
TEST(Delayed, FollowsTheSampleTrajectory) {
  const History history =
      history_of("delayed", {.H = 5, .lr = 0.7, .momentum = 0.9}, 2, 3, two_parabolas);
  const double shrink = std::pow(0.9, 5);
  double x = 2, b = 0, stale = 0;
  std::vector<float> expected;
  for (int round = 0; round < 3; ++round) {
    // Delta = x - mean theta, theta_m = c_m + shrink (x - c_m).
    const double fresh = x - (-1 + shrink * (x + 1));
    if (round > 0) {
      b = 0.9 * b + stale;
      x -= 0.7 * (stale + 0.9 * b);
    }
    stale = fresh;
    expected.push_back(static_cast<float>(x));
  }
  EXPECT_NEAR(expected[1], .3660551f, kFewUlps);
  expect_near(first_values(history), expected);
}

TEST(Eager, FollowsTheSampleTrajectoryOfEachWorker) {
  const History history =
      history_of("eager", {.H = 5, .lr = 0.7, .momentum = 0.9}, 2, 4, two_parabolas);
  EXPECT_NEAR(history[0][0][0], 1.7276759f, kFewUlps);
  EXPECT_NEAR(history[0][1][0], .6383792f, kFewUlps);
  const double shrink = std::pow(0.9, 5);
  const double center[2] = {1, -3};
  double x[2] = {2, 2}, b[2] = {0, 0}, stale[2] = {0, 0};
  for (std::size_t round = 0; round < 4; ++round) {
    double fresh[2];
    for (int m = 0; m < 2; ++m) fresh[m] = (1 - shrink) * (x[m] - center[m]);
    for (std::size_t m = 0; m < 2; ++m) {
      const double g = (stale[0] + stale[1]) / 2 + (fresh[m] - stale[m]) / 2;
      b[m] = 0.9 * b[m] + g;
      x[m] -= 0.7 * (g + 0.9 * b[m]);
      EXPECT_NEAR(history[round][m][0], x[m], 2 * kFewUlps) << "round " << round;
    }
    std::copy(fresh, fresh + 2, stale);
  }
}

TEST(Co2, FollowsTheSampleTrajectory) {
  expect_near(
      first_values(history_of("co2", {.H = 5, .lr = 0.7, .momentum = 0.9}, 2, 3, two_parabolas)),
      {2, 1.140029f, -.4939159f});
}

struct Reference {
  std::string name;
  OuterOptions outer;
  NaiveOptions naive;
};
void PrintTo(const Reference& reference, std::ostream* out) { *out << reference.name; }

class PlainReference : public ::testing::TestWithParam<Reference> {};

// Bit for bit with fp32 on the wire, in every round and after the drain.
TEST_P(PlainReference, IsFollowedBitForBit) {
  Reference reference = GetParam();
  for (const int workers : {1, 2, 3, 5}) {
    for (const ReductionKind kind : {ReductionKind::kGather, ReductionKind::kReduce}) {
      reference.naive.workers = workers;
      reference.outer.exchange = kind;
      const auto loop = [](int worker) {
        QuadraticLoop::Options options = small_model(worker);
        options.decay = 0.9f;
        return options;
      };
      EXPECT_EQ(history_of(reference.naive.method, reference.outer, workers, reference.naive.rounds,
                           loop, true),
                naive_round_behind(reference.naive, loop))
          << workers << " workers";
    }
  }
}

const std::vector<Reference> kReferences = {
    {"Delayed", {.H = 3, .lr = 0.7, .momentum = 0.9}, {.method = "delayed"}},
    {"DelayedHeavyBall",
     {.H = 3, .lr = 0.7, .momentum = 0.9, .nesterov = false},
     {.method = "delayed", .nesterov = false}},
    {"DelayedEveryStep",
     {.H = 1, .lr = 0.4, .momentum = 0.5},
     {.method = "delayed", .rounds = 9, .H = 1, .lr = 0.4f, .momentum = 0.5f}},
    {"Eager", {.H = 3, .lr = 0.7, .momentum = 0.9}, {.method = "eager"}},
    {"EagerHeavyBall",
     {.H = 2, .lr = 0.4, .momentum = 0.8, .nesterov = false},
     {.method = "eager", .rounds = 6, .H = 2, .lr = 0.4f, .momentum = 0.8f, .nesterov = false}},
    {"Co2", {.H = 3, .lr = 0.7, .momentum = 0.9}, {.method = "co2", .nesterov = false}},
    {"Co2WithoutMomentum",
     {.H = 3, .lr = 1.0, .momentum = 0.0},
     {.method = "co2", .lr = 1, .momentum = 0, .nesterov = false}},
    {"Co2Clipped",
     {.H = 3, .lr = 1.0, .momentum = 0.5, .momentum_clip = 0.25},
     {.method = "co2", .rounds = 6, .lr = 1, .momentum = 0.5f, .nesterov = false, .clip = 0.25f}},
    {"Co2Constant",
     {.H = 3,
      .lr = 1.0,
      .momentum = 0.5,
      .staleness_penalty = StalenessPenalty::kConstant,
      .staleness_constant = 1.5},
     {.method = "co2", .lr = 1, .momentum = 0.5f, .nesterov = false, .constant_penalty = 1.5f}},
};

INSTANTIATE_TEST_SUITE_P(Methods, PlainReference, ::testing::ValuesIn(kReferences),
                         [](const auto& test) { return test.param.name; });

// Norms are summed in another order there, so the penalty may differ in its last place.
TEST(Co2, TheGapAwarePenaltyFollowsThePlainReference) {
  const OuterOptions outer{
      .H = 3, .lr = 1.0, .momentum = 0.5, .staleness_penalty = StalenessPenalty::kGapAware};
  const auto loop = [](int worker) {
    QuadraticLoop::Options options = small_model(worker);
    options.decay = 0.9f;
    return options;
  };
  const History expected = naive_round_behind({.method = "co2",
                                               .rounds = 6,
                                               .lr = 1,
                                               .momentum = 0.5f,
                                               .nesterov = false,
                                               .gap_aware = true},
                                              loop);
  const History ours = history_of("co2", outer, 3, 6, loop, true);
  OuterOptions none = outer;
  none.staleness_penalty = StalenessPenalty::kNone;
  const History without = history_of("co2", none, 3, 6, loop, true);
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t round = 0; round < ours.size(); ++round) {
    EXPECT_EQ(ours[round][0], ours[round][1]) << "all workers divide alike";
    for (std::size_t i = 0; i < ours[round][0].size(); ++i) {
      // Values below 256, a penalty off by one unit in the last place, six rounds.
      ASSERT_NEAR(ours[round][0][i], expected[round][0][i], 6 * 256 * 0x1p-22) << i;
    }
  }
  EXPECT_EQ(ours[1], without[1]);  // the first apply: the anchor has not moved, so Lambda is 1
  EXPECT_NE(ours[2], without[2]);
}

// With Lambda >= 1 the anchor never moves further than without; Lambda is 1 without movement.
TEST(Co2, ThePenaltyOnlyShortensAndIsOneWithoutMovement) {
  const auto run = [](StalenessPenalty penalty, float lr) {
    return first_values(
        history_of("co2", {.H = 5, .lr = 0.5, .momentum = 0.0, .staleness_penalty = penalty}, 2, 4,
                   [lr](int worker) {
                     QuadraticLoop::Options options = two_parabolas(worker);
                     options.lr = lr;
                     return options;
                   }));
  };
  const std::vector<float> plain = run(StalenessPenalty::kNone, 0.1f);
  const std::vector<float> penalised = run(StalenessPenalty::kGapAware, 0.1f);
  EXPECT_EQ(plain[1], penalised[1]);
  EXPECT_LT(std::abs(penalised[2] - penalised[1]), std::abs(plain[2] - plain[1]));
  EXPECT_EQ(run(StalenessPenalty::kGapAware, 0), (std::vector<float>{2, 2, 2, 2}));
}

// The public code's clamp has no effect: such a clip must not pass for ours.
TEST(Co2, TheClipClipsWhatIsUsedAndNotWhatIsStored) {
  const auto run = [](std::optional<double> clip) {
    return first_values(history_of(
        "co2", {.H = 5, .lr = 1.0, .momentum = 0.5, .momentum_clip = clip}, 2, 5, two_parabolas));
  };
  const std::vector<float> clipped = run(0.25);
  EXPECT_NE(clipped, run(std::nullopt));
  // Delta = 1.22853 at x = 2: far beyond the clip, so each of these rounds moves by 0.25 exactly.
  EXPECT_EQ(clipped, (std::vector<float>{2, 1.75f, 1.5f, 1.25f, 1.0f}));
  // Stored unclipped: m stays beyond the clip for a while after Delta has gone.
  kernels::OuterStep step{.rule = kernels::OuterStepRule::kHeavyBall, .eta = 1, .mu = 0.5f};
  std::vector<float> x = {0}, m = {0};
  for (const float fresh : {8.0f, 0.0f, 0.0f, 0.0f}) {
    std::vector<float> d = {fresh};
    (void)outer::co2_step(step, 1, 1, x, d, m);
  }
  EXPECT_EQ(m[0], 1.0f);  // 8, 4, 2, 1
  EXPECT_EQ(x[0], -4.0f);
}

TEST(RoundBehind, Co2WithoutPenaltyAndClipIsDelayedHeavyBall) {
  for (const std::string codec : {"fp32", "int8:256"}) {
    OuterOptions outer{.H = 3, .lr = 0.7, .momentum = 0.9, .codec = codec};
    const History co2 = history_of("co2", outer, 3, 5, small_model, true);
    outer.nesterov = false;
    EXPECT_EQ(co2, history_of("delayed", outer, 3, 5, small_model, true)) << codec;
  }
}

TEST(RoundBehind, EagerOfOneWorkerIsDiLoCoOfOneWorker) {
  const OuterOptions outer{.H = 3, .lr = 0.7, .momentum = 0.9};
  EXPECT_EQ(history_of("eager", outer, 1, 6, small_model, true),
            history_of("diloco", outer, 1, 6, small_model, true));
  // And with a codec too: what is taken out is what went in, so nothing of the codec is left.
  OuterOptions coded = outer;
  coded.codec = "int8:256";
  EXPECT_EQ(history_of("eager", coded, 1, 6, small_model),
            history_of("eager", outer, 1, 6, small_model));
}

// Taking out the uncoded Delta instead of the decoded one leaves the codec's error in every round.
TEST(Eager, TakesOutItsOwnPartAsItEnteredTheMean) {
  const auto same = [](int) { return small_model(0); };
  const OuterOptions outer{.H = 3, .lr = 0.7, .momentum = 0.0, .codec = "int8:256"};
  const History coded = history_of("eager", outer, 2, 5, same);
  // Two like workers: mean = D(Q(Delta)), own part D(Q(Delta))/2, so g = D(Q(D_before))/2 + D/2.
  QuadraticLoop loop(same(0));
  const std::unique_ptr<const Codec> codec = make_codec("int8:256");
  std::vector<float> anchor = loop.all(), before(anchor.size(), 0.0f);
  for (std::size_t round = 0; round < 5; ++round) {
    for (std::int64_t h = 1; h <= 3; ++h) {
      (void)loop.train_step(StepIndex(static_cast<std::int64_t>(round) * 3 + h));
    }
    std::vector<float> delta = loop.all();
    for (std::size_t i = 0; i < delta.size(); ++i) {
      delta[i] = anchor[i] - delta[i];
      anchor[i] -= 0.7f * ((before[i] - before[i] / 2) + delta[i] / 2);
    }
    ASSERT_TRUE(decode(*codec, encode(*codec, delta).bytes, before).has_value());
    loop.set(anchor);
    EXPECT_EQ(coded[round][0], anchor) << round;
    EXPECT_EQ(coded[round][1], anchor) << round;
  }
}

// Not eager: how much of it is stale depends on the number of workers.
TEST(RoundBehind, IdenticalWorkersFollowOneWorker) {
  const auto same = [](int) { return small_model(0); };
  for (const std::string method : {"delayed", "co2"}) {
    const OuterOptions outer{.H = 4, .lr = 0.5, .momentum = 0.5};
    const auto run = [&](int workers) {
      return run_family(
          {.workers = workers, .steps = 20, .method = method, .outer = outer, .loop = same});
    };
    const std::vector<float> one = run(1);
    const std::vector<float> five = run(5);
    EXPECT_EQ(one, run(2)) << method;  // (x + x) / 2 is exact
    for (std::size_t i = 0; i < one.size(); ++i) {
      // Five additions and a division, each within half a unit in the last place of a sum below
      // 5 * 256, over five rounds whose gain is at most 2.
      ASSERT_NEAR(one[i], five[i], 7 * 6 * 256 * 0x1p-24) << method << " " << i;
    }
  }
}

TEST(RoundBehind, AnchorsAreSharedExceptByEager) {
  for (const MethodInfo& method : methods()) {
    if (!method.round_behind) continue;
    const History history =
        history_of(method.name, {.H = 3, .codec = "int8:256"}, 3, 4, small_model);
    for (std::size_t round = 0; round < history.size(); ++round) {
      if (method.shared_anchors) {
        EXPECT_EQ(history[round][0], history[round][1]) << method.name;
        EXPECT_EQ(history[round][0], history[round][2]) << method.name;
      } else {
        EXPECT_NE(history[round][0], history[round][1]) << method.name;
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
