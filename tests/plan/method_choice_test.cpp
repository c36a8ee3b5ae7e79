// SPDX-License-Identifier: Apache-2.0
// What methods take on given links, against closed forms, and which one is chosen.
#include "plan/method_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <set>

#include "isthmus/errors.h"
#include "sim/network.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;

constexpr double kParameters = 1e9;

ChoiceQuestion question_at(double bits_per_s, int members = 2,
                           Duration one_way = milliseconds(15)) {
  return {.parameters = kParameters,
          .layers = 24,
          .step_s = 1,
          .members = members,
          .links =
              uniform_links(members, {.bits_per_s = std::llround(bits_per_s), .one_way = one_way})};
}

const MethodCandidate& candidate(std::string_view method, std::int64_t H, std::string_view codec) {
  for (const MethodCandidate& each : method_candidates()) {
    if (each.method == method && each.H == H && each.codec == codec) return each;
  }
  throw ConfigError("no such candidate");
}

// Two sites with one fragment: B * 8 / rate and one round trip a round (src/plan/MODELS.md).
TEST(MethodTime, ABlockingRoundIsItsBytesAndARoundTrip) {
  for (const double rate : {1e8, 1e9, 1e10}) {
    for (const Duration one_way : {Duration(0), Duration(milliseconds(100))}) {
      const ChoiceQuestion question = question_at(rate, 2, one_way);
      const OuterOptions options = options_of(candidate("muloco", 30, "bf16"), question.layers);
      const MethodTime time = time_method(question, "diloco", options);
      const double round = kParameters * 16 / rate + 2 * in_seconds(one_way);
      EXPECT_NEAR(time.step_s, 1 + round / 30, 1e-3 * round / 30 + 1e-6) << rate;
      EXPECT_NEAR(time.computing, 1 / time.step_s, 1e-12);
      EXPECT_NEAR(time.step_bytes, kParameters * 2 / 30, 1e-3 * kParameters * 2 / 30);
    }
  }
}

// An exchange that no step can hide sets the pace: the bytes of a step over the rate.
TEST(MethodTime, DataParallelismOnASlowLinkIsTheLink) {
  const ChoiceQuestion question = question_at(1e8);
  const MethodTime time =
      time_method(question, "ddp", options_of(candidate("ddp", 1, "bf16"), question.layers));
  EXPECT_NEAR(time.step_s, kParameters * 16 / 1e8, 0.02 * kParameters * 16 / 1e8);
}

TEST(MethodTime, StreamingHidesWhatFitsIntoItsOverlap) {
  const OuterOptions options = options_of(candidate("streaming-diloco", 30, "bf16"), 24);
  EXPECT_EQ(options.fragments, 8);
  EXPECT_EQ(options.overlap, 1);
  // An eighth of 2 GB takes 0.8 s at 2.5 Gbit/s: within the one step of overlap.
  EXPECT_NEAR(time_method(question_at(2.5e9), "streaming-diloco", options).computing, 1, 1e-3);
  // At 1 Gbit/s it takes 2 s, of which one is hidden: eight such in 30 steps.
  const double exposed = kParameters * 16 / 8 / 1e9 + 2 * 0.015 - 1;
  EXPECT_NEAR(time_method(question_at(1e9), "streaming-diloco", options).step_s,
              1 + 8 * exposed / 30, 0.02);
}

// A whole run ends with its closing round or not; its mean step tends to the repeating one.
TEST(MethodTime, ALongRunTendsToItsPattern) {
  const ChoiceQuestion question = question_at(1e9);
  const OuterOptions options = options_of(candidate("muloco", 30, "bf16"), question.layers);
  const double repeating = time_method(question, "diloco", options).step_s;
  EXPECT_NEAR(time_run(question, "diloco", options, 3000).step_s, repeating, 1e-3 * repeating);
}

TEST(MethodChoice, TakesTheMildestThatIsEnough) {
  const MethodChoice fast = choose_method(question_at(1e12, 2, Duration(0)), 0.9);
  EXPECT_EQ(fast.chosen, 0u);
  EXPECT_EQ(fast.candidates[0].candidate->method, "ddp");
  const MethodChoice slow = choose_method(question_at(1e9), 0.9);
  ASSERT_GT(slow.chosen, 0u);
  EXPECT_TRUE(slow.candidates[slow.chosen].enough);
  EXPECT_GE(slow.candidates[slow.chosen].time.computing, 0.9);
  for (std::size_t i = 0; i < slow.chosen; ++i) {
    EXPECT_LT(slow.candidates[i].time.computing, 0.9) << i;
  }
}

TEST(MethodChoice, TakesTheFastestWhereNoneIsEnough) {
  const MethodChoice choice = choose_method(question_at(1e5), 0.9);
  const TimedCandidate& chosen = choice.candidates[choice.chosen];
  EXPECT_FALSE(chosen.enough);
  for (const TimedCandidate& each : choice.candidates) {
    EXPECT_LE(chosen.time.step_s, each.time.step_s) << each.candidate->method;
  }
}

TEST(MethodChoice, NeverGetsMilderOnASlowerLink) {
  std::size_t before = method_candidates().size();
  for (double rate = 1e7; rate < 1e12; rate *= 3) {
    const MethodChoice choice = choose_method(question_at(rate), 0.9);
    if (!choice.candidates[choice.chosen].enough) continue;
    EXPECT_LE(choice.chosen, before) << rate;
    before = choice.chosen;
  }
  EXPECT_EQ(before, 0u);
}

TEST(MethodChoice, EachCandidateIsTheOneToTakeSomewhere) {
  struct Place {
    int layers;
    Duration one_way;
  };
  // Where a round trip takes steps, fragments that wait for it one after another lose to one round.
  constexpr std::array kPlaces = {
      Place{.layers = 24, .one_way = milliseconds(15)},
      Place{.layers = 24, .one_way = milliseconds(1000)},
      Place{.layers = 24, .one_way = milliseconds(5000)},
      Place{.layers = 24, .one_way = milliseconds(20000)},
      Place{.layers = 6, .one_way = milliseconds(2000)},
  };
  std::set<std::size_t> chosen;
  for (const Place& place : kPlaces) {
    for (double rate = 1e7; rate < 1e12; rate *= 1.5) {
      ChoiceQuestion question = question_at(rate, 2, place.one_way);
      question.layers = place.layers;
      const MethodChoice choice = choose_method(question, 0.9);
      if (choice.candidates[choice.chosen].enough) chosen.insert(choice.chosen);
    }
  }
  for (std::size_t i = 0; i < method_candidates().size(); ++i) {
    const MethodCandidate& each = method_candidates()[i];
    EXPECT_TRUE(chosen.contains(i)) << each.method << ' ' << each.codec << ' ' << each.H;
  }
}

TEST(MethodChoice, EachCandidateSaysWhereItsLossWasMeasured) {
  for (const MethodCandidate& each : method_candidates()) {
    EXPECT_FALSE(each.evidence.empty()) << each.method;
    for (const ChoiceEvidence& piece : each.evidence) {
      EXPECT_FALSE(piece.claim.empty()) << piece.source;
      EXPECT_TRUE(piece.source.starts_with("arXiv:") || piece.source.starts_with("experiments/") ||
                  piece.source.starts_with("isthmus "))
          << piece.source;
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
