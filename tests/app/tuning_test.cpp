// SPDX-License-Identifier: Apache-2.0
// Where follow-up trials go, on made-up losses.
#include "app/compare/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace isthmus::app::this_file {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Point at(const std::vector<std::string>& values) {
  const std::vector<std::string> keys = {"inner.lr", "outer.lr"};
  Point point;
  for (std::size_t i = 0; i < values.size(); ++i) {
    point.push_back({.key = keys[i], .value = values[i]});
  }
  return point;
}
std::vector<std::string> values(const std::optional<Point>& point) {
  std::vector<std::string> all;
  for (const Setting& setting : point.value_or(Point{})) {
    all.push_back(setting.value);
  }
  return all;
}
bool anything(const Point&) { return true; }

std::vector<Trial> line(const std::vector<std::pair<std::string, double>>& losses) {
  std::vector<Trial> trials;
  for (const auto& [value, loss] : losses) {
    trials.push_back({at({value}), loss});
  }
  return trials;
}

// Three seeds by hand: mean 2, deviation 1.
TEST(Trials, APointsLossIsTheMeanOverItsSeeds) {
  const std::vector<double> losses = {1, 2, 3};
  const Trial trial = trial_of(at({"0.001"}), losses);
  EXPECT_DOUBLE_EQ(trial.loss, 2);
  EXPECT_DOUBLE_EQ(trial.spread, 1);
  const std::vector<double> one = {2.5};
  EXPECT_DOUBLE_EQ(trial_of({}, one).loss, 2.5);
  EXPECT_EQ(trial_of({}, one).spread, 0);
  const std::vector<double> failed = {2, INFINITY};
  EXPECT_TRUE(std::isinf(trial_of({}, failed).loss));
  EXPECT_EQ(trial_of({}, failed).spread, 0);
}

// The largest rate has the lowest mean and loses half of its seeds' gain: the one below is taken.
TEST(Trials, ARateAtTheEdgeOfStabilityIsPassedOver) {
  std::vector<Trial> trials = line({{"0.004", 2.3}, {"0.008", 2.2}, {"0.016", 2.1}, {"0.032", 2}});
  const double spreads[] = {0.02, 0.03, 0.02, 0.3};
  for (std::size_t i = 0; i < trials.size(); ++i) trials[i].spread = spreads[i];
  EXPECT_EQ(best_of(trials)->point.front().value, "0.016");
  EXPECT_TRUE(unsteady(trials, trials[3]));
  EXPECT_FALSE(unsteady(trials, trials[1]));
  trials[3].spread = 0.08;  // less than four times the middle one's
  EXPECT_EQ(best_of(trials)->point.front().value, "0.032");
  // Of two points nobody can say which spread is normal.
  const std::vector<Trial> two = {{at({"0.004"}), 2.3, 0.01}, {at({"0.008"}), 2.2, 0.5}};
  EXPECT_EQ(best_of(two)->point.front().value, "0.008");
}

TEST(Grid, ChangesTheLastKeyFastest) {
  const std::vector<TuneAxis> space = {{"inner.lr", at({"1", "2"})}, {"outer.lr", at({"3", "4"})}};
  std::vector<std::vector<std::string>> all;
  for (const Point& point : grid_of(space)) {
    all.push_back(values(point));
  }
  EXPECT_THAT(all, ElementsAre(ElementsAre("1", "3"), ElementsAre("1", "4"), ElementsAre("2", "3"),
                               ElementsAre("2", "4")));
  EXPECT_EQ(grid_of({}).size(), 1U);
}

TEST(FollowUp, GoesBeyondTheLargestByTheGridsFactor) {
  const auto trials = line({{"0.001", 3}, {"0.002", 2}, {"0.004", 1}});
  EXPECT_THAT(values(follow_up(trials, anything)), ElementsAre("0.008"));
  const auto edges = edges_of(trials, anything);
  ASSERT_EQ(edges.size(), 1U);
  EXPECT_EQ(edges[0].key, "inner.lr");
  EXPECT_EQ(edges[0].value, "0.004");
  EXPECT_TRUE(edges[0].largest);
}

TEST(FollowUp, GoesBelowTheSmallest) {
  EXPECT_THAT(values(follow_up(line({{"0.001", 1}, {"0.003", 2}}), anything)),
              ElementsAre("0.0003333"));
  EXPECT_FALSE(edges_of(line({{"0.001", 1}, {"0.003", 2}}), anything)[0].largest);
}

TEST(FollowUp, HalvesTheGapOnTheBetterSideOfAnInnerBest) {
  const auto trials = line({{"0.001", 3}, {"0.002", 1}, {"0.004", 2}});
  EXPECT_THAT(values(follow_up(trials, anything)), ElementsAre("0.002828"));
  EXPECT_THAT(edges_of(trials, anything), IsEmpty());
}

TEST(FollowUp, PrefersAWideGapToAGoodNeighbour) {
  EXPECT_THAT(values(follow_up(line({{"0.001", 3}, {"0.004", 1}, {"0.006", 2}}), anything)),
              ElementsAre("0.002"));
}

TEST(FollowUp, KeepsWholeNumbersAndUnits) {
  EXPECT_THAT(values(follow_up(line({{"10", 2}, {"20", 1}}), anything)), ElementsAre("40"));
  EXPECT_THAT(values(follow_up(line({{"\"1k tok\"", 2}, {"\"2k tok\"", 1}}), anything)),
              ElementsAre("\"4k tok\""));
}

TEST(FollowUp, HasNowhereToGoOnWords) {
  EXPECT_FALSE(follow_up(line({{"\"cosine\"", 2}, {"\"linear\"", 1}}), anything));
  EXPECT_THAT(edges_of(line({{"\"cosine\"", 2}, {"\"linear\"", 1}}), anything), IsEmpty());
  EXPECT_FALSE(follow_up(line({{"\"1k tok\"", 2}, {"\"2000 tok\"", 1}}), anything));
  EXPECT_FALSE(follow_up(line({{"true", 2}, {"false", 1}}), anything));
}

TEST(FollowUp, ASingleValueHasNoEdge) {
  EXPECT_FALSE(follow_up(line({{"0.001", 1}}), anything));
  EXPECT_THAT(edges_of(line({{"0.001", 1}}), anything), IsEmpty());
}

TEST(FollowUp, StopsAtTheEndOfWhatIsAllowed) {
  const auto below_one = [](const Point& point) { return std::stod(point[0].value) < 1; };
  EXPECT_THAT(values(follow_up(line({{"0.8", 2}, {"0.9", 1}}), below_one)), ElementsAre("0.9546"));
  const auto at_most_one = [](const Point& point) { return std::stod(point[0].value) <= 1; };
  const auto trials = line({{"0.5", 2}, {"1", 1}});
  EXPECT_THAT(edges_of(trials, at_most_one), IsEmpty());
  EXPECT_THAT(values(follow_up(trials, at_most_one)), ElementsAre("0.7071"));  // inside instead
}

TEST(FollowUp, ZeroIsSteppedOverEvenly) {
  EXPECT_THAT(values(follow_up(line({{"0", 2}, {"0.5", 1}}), anything)), ElementsAre("1"));
}

TEST(FollowUp, ThereIsNoWholeNumberBetweenZeroAndLess) {
  const auto not_negative = [](const Point& point) { return std::stod(point[0].value) >= 0; };
  const std::vector<Trial> trials = line({{"0", 1}, {"1", 2}, {"2", 3}});
  EXPECT_FALSE(follow_up(trials, not_negative));
  EXPECT_THAT(edges_of(trials, not_negative), IsEmpty());
  EXPECT_THAT(values(follow_up(line({{"0", 1}, {"4", 2}}), not_negative)), ElementsAre("2"));
}

TEST(FollowUp, TakesOneAxisAfterTheOther) {
  std::vector<Trial> trials;
  for (const char* inner : {"1", "2", "4"}) {
    for (const char* outer : {"0.35", "0.7"}) {
      const double loss = std::abs(std::log2(std::stod(inner) / 2)) + (0.7 - std::stod(outer));
      trials.push_back({at({inner, outer}), loss});
    }
  }
  const auto first = follow_up(trials, anything);
  EXPECT_THAT(values(first), ElementsAre("2", "1.4"));
  trials.push_back({*first, 5});  // worse: the edge is found
  EXPECT_THAT(edges_of(trials, anything), IsEmpty());
  EXPECT_EQ(values(best_of(trials)->point), values(at({"2", "0.7"})));
  EXPECT_THAT(values(follow_up(trials, anything)), ElementsAre("2", "0.495"));
}

TEST(FollowUp, FailedTrialsAreNeverBest) {
  const double failed = INFINITY;
  EXPECT_FALSE(follow_up(line({{"1", failed}, {"2", failed}}), anything));
  EXPECT_EQ(best_of(line({{"1", failed}, {"2", failed}})), nullptr);
  const auto trials = line({{"0.1", 3}, {"0.2", 1}, {"0.4", failed}});
  EXPECT_THAT(values(follow_up(trials, anything)), ElementsAre("0.1414"));
  EXPECT_THAT(edges_of(trials, anything), IsEmpty());
}

TEST(FollowUp, OfEqualLossesTheFirstIsBest) {
  EXPECT_EQ(best_of(line({{"1", 2}, {"2", 2}}))->point[0].value, "1");
}

}  // namespace
}  // namespace isthmus::app::this_file
