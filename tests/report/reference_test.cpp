// SPDX-License-Identifier: Apache-2.0
// Reference curves on made-up cells: a planted shift is found, noise alone is not.
#include "report/data/reference.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/base/rng.h"

namespace isthmus::report::this_file {
namespace {

constexpr std::array<std::int64_t, 4> kSteps = {20, 40, 60, 80};
constexpr double kNoise = 0.01;  // of a whole run and of each evaluation, nats

struct Plan {
  int seeds = 24;
  double shift = 0;            // of the last evaluation of "diloco"
  std::string failed_variant;  // its first run ends at step 40
};

/// Draws that follow one another.
struct Chance {
  explicit Chance(std::uint64_t seed) : rng(seed, Stream::kTestData) {}
  double normal() { return rng.normal(drawn++); }
  Rng rng;
  std::uint64_t drawn = 0;
};

std::vector<CellResult> made_up(Chance& chance, const Plan& plan) {
  const auto noise = [&chance] { return kNoise * chance.normal(); };
  std::vector<CellResult> cells;
  for (const std::string variant : {"ddp", "diloco"}) {
    for (int seed = 1; seed <= plan.seeds; ++seed) {
      CellResult cell{.variant = variant, .method = variant, .seed = seed};
      const double whole = noise();
      for (const std::int64_t step : kSteps) {
        const bool shifted = variant == "diloco" && step == kSteps.back();
        cell.evals.push_back({.step = step,
                              .loss = 3 - 0.01 * static_cast<double>(step) + whole + noise() +
                                      (shifted ? plan.shift : 0)});
      }
      if (seed == 1 && variant == plan.failed_variant) {
        cell.status = CellStatus::kFailed;
        cell.cause = "step 41: the loss is nan";
        cell.evals.resize(2);
      }
      cells.push_back(cell);
    }
  }
  return cells;
}

bool normal(const std::vector<CurveCheck>& checks) {
  bool all = true;
  for (const CurveCheck& check : checks) all = all && check.normal();
  return all;
}

TEST(Reference, NoiseAloneIsCalledOddNoOftenerThanPromised) {
  constexpr int kChecks = 2000;
  constexpr double kPromise = 0.05;
  int alarms = 0;
  for (int i = 0; i < kChecks; ++i) {
    Chance chance(static_cast<std::uint64_t>(i));
    const auto reference = made_up(chance, {});
    alarms += normal(check_curves(reference, made_up(chance, {.seeds = 3}), kPromise)) ? 0 : 1;
  }
  // Points of one run go together, so a sum of levels is above the truth: between half and all.
  EXPECT_LE(alarms, kChecks * kPromise + 3 * std::sqrt(kChecks * kPromise));
  EXPECT_GE(alarms, kChecks * kPromise / 4);
}

TEST(Reference, APlantedShiftIsFoundWhereItIs) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Chance chance(seed);
    const auto reference = made_up(chance, {});
    // Five deviations of a mean of three runs, and what the strict level asks.
    const auto checks = check_curves(reference, made_up(chance, {.seeds = 3, .shift = 8 * kNoise}));
    ASSERT_EQ(checks.size(), 2U);
    EXPECT_TRUE(checks[0].normal()) << "seed " << seed;
    EXPECT_FALSE(checks[1].normal()) << "seed " << seed;
    EXPECT_EQ(checks[1].furthest().step, kSteps.back());
    EXPECT_GT(distance(checks[1].furthest()), 1);
  }
}

TEST(Reference, ARunThatFailedIsOdd) {
  Chance chance(1);
  const auto reference = made_up(chance, {});
  const auto checks =
      check_curves(reference, made_up(chance, {.seeds = 2, .failed_variant = "ddp"}));
  EXPECT_FALSE(checks[0].normal());
  EXPECT_EQ(checks[0].cause, "step 41: the loss is nan");
  EXPECT_TRUE(std::isinf(checks[0].furthest().loss));
  EXPECT_TRUE(checks[1].normal());
}

TEST(Reference, TheBandIsThatOfAMeanOfNewRuns) {
  // Losses 1, 2, 3 and one new run: 2 +- t(2) sqrt(1/3 + 1); one point, level 0.1, t = 2.91999.
  std::vector<CellResult> reference;
  for (const double loss : {1.0, 2.0, 3.0}) {
    reference.push_back({.variant = "a", .evals = {{.step = 5, .loss = loss}}});
  }
  const auto checks =
      check_curves(reference, {{.variant = "a", .evals = {{.step = 5, .loss = 5.0}}}}, 0.1);
  const double half = 2.919986 * std::sqrt(4.0 / 3);
  EXPECT_NEAR(checks[0].points[0].band.low, 2 - half, 1e-5);
  EXPECT_NEAR(checks[0].points[0].band.high, 2 + half, 1e-5);
  EXPECT_TRUE(checks[0].normal());
  EXPECT_NEAR(distance(checks[0].points[0]), 3 / half, 1e-6);
}

}  // namespace
}  // namespace isthmus::report::this_file
