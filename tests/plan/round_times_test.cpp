// SPDX-License-Identifier: Apache-2.0
// Single rounds, predicted and measured: which are kept, what is compared, what is said.
#include "record/round_times.h"

#include <gtest/gtest.h>

#include <cmath>

namespace isthmus::this_file {
namespace {

/// Rounds of fragment 0 after each H-th step of so many.
RoundTimes every(std::int64_t H, std::int64_t steps, double seconds, std::int64_t first = 1) {
  RoundTimes times;
  for (std::int64_t t = H; t <= steps; t += H) {
    if (t >= first) times.add(FragmentId(0), StepIndex(t), seconds);
  }
  return times;
}

TEST(RoundTimes, ComparesTheRoundsThatBothKnow) {
  RoundTimes predicted;
  RoundTimes measured;
  for (int t = 1; t <= 20; ++t) predicted.add(FragmentId(0), StepIndex(t), 0.5 + t);
  for (int t = 11; t <= 30; ++t) measured.add(FragmentId(0), StepIndex(t), 2 * (0.5 + t));
  predicted.add(FragmentId(1), StepIndex(1), 7);  // never measured
  const RoundComparison comparison = compare_rounds(predicted, measured);
  ASSERT_EQ(comparison.fragments.size(), 1);
  const RoundsCompared& rounds = comparison.fragments.front();
  EXPECT_EQ(rounds.rounds, 10);  // 11 to 20
  EXPECT_EQ(rounds.predicted.median_s, 15.5);
  EXPECT_EQ(rounds.predicted.p95_s, 20.5);  // the tenth of ten
  EXPECT_EQ(rounds.measured.median_s, 31);
  EXPECT_EQ(rounds.error(), -0.5);
  ASSERT_EQ(comparison.pairs.size(), 10);
  EXPECT_EQ(comparison.pairs.front().sent, 11);
  EXPECT_EQ(comparison.pairs.front().measured_s, 2 * comparison.pairs.front().predicted_s);
}

TEST(RoundTimes, ManyRoundsAreSampledAlikeWhicheverEndIsMissing) {
  constexpr std::int64_t kSteps = 1'000'000;
  const RoundTimes predicted = every(10, kSteps, 1);
  const RoundTimes measured = every(10, kSteps, 2, kSteps / 2);  // came late
  const auto& kept = predicted.by_fragment().at(0).at;
  EXPECT_LE(kept.size(), RoundTimes::kMost);
  EXPECT_GE(kept.size(), RoundTimes::kMost / 4);
  const RoundComparison comparison = compare_rounds(predicted, measured);
  EXPECT_GE(comparison.all.rounds, RoundTimes::kMost / 8);
  EXPECT_EQ(comparison.all.error(), -0.5);
  EXPECT_LE(comparison.pairs.size(), 400);
  EXPECT_GE(comparison.pairs.front().sent, kSteps / 2);
}

TEST(RoundTimes, ASampleDoesNotMeetAPeriodOfTheRounds) {
  RoundTimes times;
  constexpr std::int64_t kSteps = 100'000;
  for (std::int64_t t = 1; t <= kSteps; ++t) {
    times.add(FragmentId(0), StepIndex(t), t % 16 == 0 ? 1 : 0);
  }
  double slow = 0;
  const auto& kept = times.by_fragment().at(0).at;
  for (const auto& [t, seconds] : kept) slow += seconds;
  // One in sixteen, within five standard deviations of a draw of so many.
  const double share = slow / static_cast<double>(kept.size());
  EXPECT_NEAR(share, 1.0 / 16, 5 * std::sqrt(15.0 / 256 / static_cast<double>(kept.size())));
}

TEST(RoundTimes, NoTimeAtAllIsNoError) {
  EXPECT_EQ(compare_rounds(every(1, 3, 0), every(1, 3, 0)).all.error(), 0);
  EXPECT_TRUE(std::isnan(compare_rounds(every(1, 3, 1), every(1, 3, 0)).all.error()));
  EXPECT_EQ(compare_rounds(every(1, 3, 1), {}).all.rounds, 0);
  EXPECT_EQ(render_rounds(compare_rounds(every(1, 3, 1), {}), "east"), "");
}

TEST(RoundTimes, TheTableHasALineAFragmentAndOneOfAll) {
  RoundTimes predicted;
  RoundTimes measured;
  for (int fragment = 0; fragment < 12; ++fragment) {
    predicted.add(FragmentId(fragment), StepIndex(5), 0.9 * (fragment + 1));
    measured.add(FragmentId(fragment), StepIndex(5), fragment + 1);
  }
  const std::string text = render_rounds(compare_rounds(predicted, measured), "east");
  EXPECT_NE(text.find("rounds at east"), std::string::npos) << text;
  EXPECT_NE(text.find("fragment 11 "), std::string::npos) << text;
  EXPECT_EQ(text.find("fragment 3 "), std::string::npos) << text;  // the four shortest
  EXPECT_NE(text.find("(4 fragments with shorter rounds"), std::string::npos) << text;
  EXPECT_NE(text.find("all fragments"), std::string::npos) << text;
  EXPECT_NE(text.find("-10.00 %"), std::string::npos) << text;
}

}  // namespace
}  // namespace isthmus::this_file
