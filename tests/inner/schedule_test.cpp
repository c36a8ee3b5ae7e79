// SPDX-License-Identifier: Apache-2.0
#include "inner/model/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

constexpr double kPeak = 0.5;
constexpr std::int64_t kSteps = 100;

InnerConfig config_of(const std::string& schedule, std::int64_t warmup = 0) {
  InnerConfig config;
  config.lr = kPeak;
  config.schedule = schedule;
  config.warmup.steps = warmup;
  config.floor = 0.1;
  config.decay.steps = 20;
  return config;
}

double rate(const InnerConfig& config, std::int64_t t) {
  return LearningRateSchedule(config, kSteps).at(StepIndex(t));
}

class EverySchedule : public testing::TestWithParam<const char*> {};

TEST_P(EverySchedule, HasTheFullRateAtTheFirstStepWithoutWarmUp) {
  EXPECT_DOUBLE_EQ(rate(config_of(GetParam()), 1), kPeak);
}

TEST_P(EverySchedule, WarmsUpLinearly) {
  const InnerConfig config = config_of(GetParam(), 10);
  for (std::int64_t t = 1; t <= 10; ++t) {
    EXPECT_DOUBLE_EQ(rate(config, t), kPeak * static_cast<double>(t) / 10) << t;
  }
}

TEST_P(EverySchedule, NeverExceedsThePeakNorFallsBelowTheFloorAfterWarmUp) {
  const InnerConfig config = config_of(GetParam(), 10);
  for (std::int64_t t = 10; t <= kSteps + 5; ++t) {
    EXPECT_LE(rate(config, t), kPeak) << t;
    EXPECT_GE(rate(config, t), 0.1 * kPeak * (1 - 1e-12)) << t;
  }
}

TEST_P(EverySchedule, StartsAgainAtARewarmPoint) {
  InnerConfig config = config_of(GetParam(), 4);
  config.rewarm = {{.steps = 56}};
  InnerConfig second = config_of(GetParam(), 4);
  const LearningRateSchedule whole(config, kSteps);
  const LearningRateSchedule alone(second, kSteps - 55);
  for (std::int64_t t = 56; t <= kSteps; ++t) {
    EXPECT_DOUBLE_EQ(whole.at(StepIndex(t)), alone.at(StepIndex(t - 55))) << t;
  }
  const LearningRateSchedule before(second, 55);
  for (std::int64_t t = 1; t <= 55; ++t) {
    EXPECT_DOUBLE_EQ(whole.at(StepIndex(t)), before.at(StepIndex(t))) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EverySchedule,
                         testing::Values("constant", "linear", "cosine", "wsd", "infinite",
                                         "inverse-sqrt"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Schedule, FallsToTheFloorAtTheLastStepAndStaysThere) {
  for (const char* name : {"linear", "cosine", "wsd", "infinite"}) {
    EXPECT_NEAR(rate(config_of(name, 7), kSteps), 0.1 * kPeak, 1e-15) << name;
    EXPECT_NEAR(rate(config_of(name, 7), kSteps + 50), 0.1 * kPeak, 1e-15) << name;
  }
}

TEST(Schedule, FollowsItsClosedFormHalfWay) {
  // Warm-up 10: u = 1/2 at t = 55; wsd is half way down at 90; infinite is on its level (0.55)
  // from 30 to 80 and at the geometric mean of 0.55 and 0.1 at 90.
  EXPECT_DOUBLE_EQ(rate(config_of("constant", 10), 55), kPeak);
  EXPECT_DOUBLE_EQ(rate(config_of("linear", 10), 55), kPeak * 0.55);
  EXPECT_DOUBLE_EQ(rate(config_of("cosine", 10), 55), kPeak * 0.55);
  EXPECT_NEAR(rate(config_of("cosine", 10), 40),
              kPeak * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi / 3))), 1e-15);
  EXPECT_DOUBLE_EQ(rate(config_of("wsd", 10), 80), kPeak);
  EXPECT_DOUBLE_EQ(rate(config_of("wsd", 10), 90), kPeak * 0.55);
  EXPECT_DOUBLE_EQ(rate(config_of("infinite", 10), 20), kPeak * 0.775);
  EXPECT_DOUBLE_EQ(rate(config_of("infinite", 10), 30), kPeak * 0.55);
  EXPECT_DOUBLE_EQ(rate(config_of("infinite", 10), 80), kPeak * 0.55);
  EXPECT_DOUBLE_EQ(rate(config_of("infinite", 10), 90), kPeak * std::sqrt(0.55 * 0.1));
  EXPECT_DOUBLE_EQ(rate(config_of("inverse-sqrt", 10), 40), kPeak / 2);
}

TEST(Schedule, ResolvesPercentagesOfTheRun) {
  InnerConfig config = config_of("wsd");
  config.warmup.fraction = 0.05;
  config.decay.fraction = 0.5;
  EXPECT_DOUBLE_EQ(rate(config, 1), kPeak / 5);
  EXPECT_DOUBLE_EQ(rate(config, 50), kPeak);
  EXPECT_DOUBLE_EQ(rate(config, 75), kPeak * 0.55);
}

TEST(Schedule, RefusesWhatItCannotDo) {
  EXPECT_THROW(LearningRateSchedule(config_of("step"), kSteps), ConfigError);
  InnerConfig infinite = config_of("infinite");
  infinite.floor = 0;
  EXPECT_THROW(LearningRateSchedule(infinite, kSteps), ConfigError);
  EXPECT_THROW(LearningRateSchedule(config_of("wsd"), 19), ConfigError);
  for (const char* name : {"wsd", "infinite"}) {
    InnerConfig endless = config_of(name);
    endless.decay = {};
    EXPECT_THROW(LearningRateSchedule(endless, kSteps), ConfigError) << name;
    endless.decay.fraction = 0.0;
    EXPECT_THROW(LearningRateSchedule(endless, kSteps), ConfigError) << name;
  }
}

TEST(Schedule, RefusesCyclesThatCannotHoldTheirPhases) {
  // Warm-up 4 and decay 20: a cycle of wsd takes 24 steps, one of infinite 44, one of cosine 4.
  const auto takes = [](const char* name, std::int64_t cycle) {
    InnerConfig config = config_of(name, 4);
    config.rewarm = {{.steps = kSteps - cycle + 1}};
    try {
      static_cast<void>(LearningRateSchedule(config, kSteps));
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  };
  EXPECT_TRUE(takes("wsd", 24));
  EXPECT_FALSE(takes("wsd", 23));
  EXPECT_TRUE(takes("infinite", 44));
  EXPECT_FALSE(takes("infinite", 43));
  EXPECT_TRUE(takes("cosine", 4));
  EXPECT_FALSE(takes("cosine", 3));
  EXPECT_FALSE(takes("cosine", 0));  // begins after the run
}

TEST(Schedule, SmallShareOfAShortRunIsOneStepOfDecay) {
  InnerConfig config = config_of("wsd");
  config.decay = {.fraction = 0.1};
  const LearningRateSchedule schedule(config, 4);
  EXPECT_DOUBLE_EQ(schedule.at(StepIndex(3)), kPeak);
  EXPECT_DOUBLE_EQ(schedule.at(StepIndex(4)), 0.1 * kPeak);
}

}  // namespace
}  // namespace isthmus::this_file
