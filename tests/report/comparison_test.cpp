// SPDX-License-Identifier: Apache-2.0
// Comparisons of made-up cells: planted effects are found as often as stated, planted nulls called
// effects no oftener than stated, and no sentence says more than the numbers.
#include "report/data/comparison.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/rng.h"

namespace isthmus::report::this_file {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kBaseLoss = 2.0;
constexpr double kSeedSpread = 0.02;  // what seeds share
constexpr double kOwnSpread = 0.005;  // what they do not: differences deviate by sqrt(2) of it
const double kDifferenceSpread = kOwnSpread * std::sqrt(2.0);

struct Planted {
  std::string name;
  double effect = 0;
};

CellResult cell(const std::string& variant, std::int64_t seed, double loss) {
  return {.key = "k",
          .variant = variant,
          .method = variant,
          .seed = seed,
          .steps = 100,
          .tokens = 1000,
          .parameters = 10,
          .simulated = true,
          .evals = {{50, loss + 0.5, 50, 5e6, 6e6}, {100, loss, 100, 1e7, 1.2e7}},
          .version = "v"};
}

/// One drawn experiment. The draw's number and the seed make everything random.
Comparison drawn(const std::vector<Planted>& variants, int seeds, std::uint32_t draw,
                 double margin_nats = 0.02) {
  const Rng rng(3, Stream::kTestData);
  ComparisonRules rules{.name = "drawn", .margin = margin_nats / kBaseLoss};
  std::vector<ComparedVariant> compared;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    ComparedVariant variant{.name = variants[v].name, .tuned = {{"inner.lr", "0.004"}}};
    for (int seed = 1; seed <= seeds; ++seed) {
      const auto index = static_cast<std::uint64_t>(seed);
      const double shared = kSeedSpread * rng.normal(index, draw);
      const double own = kOwnSpread * rng.normal(1000 * (v + 1) + index, draw);
      variant.runs.push_back(
          cell(variant.name, seed, kBaseLoss + variants[v].effect + shared + own));
    }
    compared.push_back(std::move(variant));
  }
  return compare_variants(rules, std::move(compared));
}

/// Share of `draws` experiments in which `found` holds.
template <typename Found>
double share(const std::vector<Planted>& variants, int seeds, int draws, const Found& found) {
  int hits = 0;
  for (int draw = 0; draw < draws; ++draw) {
    hits += found(drawn(variants, seeds, static_cast<std::uint32_t>(draw))) ? 1 : 0;
  }
  return static_cast<double>(hits) / draws;
}
constexpr int kDraws = 2000;
double four_deviations(double p) { return 4 * std::sqrt(p * (1 - p) / kDraws); }

/// Eight runs of each variant, whose losses stand apart by `steps[v]` from seed to seed.
Comparison spread_by(const std::vector<double>& steps, ComparedVariant more = {}) {
  std::vector<ComparedVariant> compared;
  for (std::size_t v = 0; v < steps.size(); ++v) {
    ComparedVariant variant{.name = fmt::format("v{}", v), .tuned = {{"inner.lr", "0.004"}}};
    variant.passed_over = more.passed_over;
    for (int seed = 1; seed <= 8; ++seed) {
      variant.runs.push_back(cell(variant.name, seed, kBaseLoss + steps[v] * seed));
    }
    compared.push_back(std::move(variant));
  }
  return compare_variants({.name = "spread"}, std::move(compared));
}

TEST(Notes, ABaselineAtTheEdgeOfStabilityIsTold) {
  // Eight numbers 1 .. 8 deviate by sqrt(6) = 2.449.
  EXPECT_THAT(spread_by({0.05, 0.01, 0.01, 0.02}).notes,
              testing::ElementsAre(testing::AllOf(HasSubstr("spread 5.0 times as much"),
                                                  HasSubstr("v0: 0.1225"), HasSubstr("0.0245"),
                                                  HasSubstr("compare.tune.seeds"))));
  EXPECT_THAT(spread_by({0.025, 0.01, 0.01, 0.02}).notes, IsEmpty());
  EXPECT_THAT(spread_by({0.01, 0.05, 0.05}).notes, IsEmpty()) << "the others' spread is their own";
}

TEST(Notes, RatesPassedOverForTheirSpreadAreTold) {
  ComparedVariant more;
  more.passed_over = {{{"inner.lr", "0.032"}, {"outer.momentum", "0.9"}}};
  EXPECT_THAT(
      spread_by({0.01, 0.01}, more).notes,
      testing::Contains(HasSubstr("v1: inner.lr = 0.032, outer.momentum = 0.9 was passed")));
}

TEST(PlantedNulls, ARareExperimentCallsOneOfThreeDifferent) {
  const double any = share({{"ddp"}, {"a"}, {"b"}, {"c"}}, 8, kDraws, [](const Comparison& each) {
    return std::any_of(each.results.begin(), each.results.end(), [](const VariantResult& result) {
      return result.against && result.against->apart;
    });
  });
  EXPECT_LT(any, 0.05 + four_deviations(0.05));
  EXPECT_GT(any, 0.02);  // the correction is no wider than it must be
}

TEST(PlantedNulls, AMarginFourDeviationsWideShowsMostOfThemEquivalent) {
  const double shown = share({{"ddp"}, {"a"}}, 8, kDraws, [](const Comparison& each) {
    return each.results[1].against->within_margin && !each.results[1].against->apart;
  });
  EXPECT_GT(shown, 0.9);
}

TEST(PlantedEffects, TheDetectableDifferenceIsFoundFourTimesInFive) {
  for (const int seeds : {8, 12}) {
    const double effect = detectable_difference(kDifferenceSpread, seeds, 0.05, kPower);
    int wrong_way = 0;
    const double found =
        share({{"ddp"}, {"a", effect}}, seeds, kDraws, [&](const Comparison& each) {
          const AgainstBaseline& against = *each.results[1].against;
          wrong_way += against.apart && against.difference.mean < 0 ? 1 : 0;
          return against.apart && against.difference.mean > 0;
        });
    EXPECT_NEAR(found, kPower, four_deviations(kPower)) << seeds << " seeds";
    EXPECT_EQ(wrong_way, 0);
  }
}

TEST(PlantedEffects, OneAsLargeAsTheMarginIsRarelyCalledEquivalent) {
  const double shown = share({{"ddp"}, {"a", 0.02}}, 8, kDraws, [](const Comparison& each) {
    return each.results[1].against->within_margin;
  });
  EXPECT_LT(shown, 0.05 + four_deviations(0.05));
}

TEST(PlantedEffects, TheStatedDetectableDifferenceIsOfTheRightSize) {
  double sum = 0;
  constexpr int kSome = 500;
  for (std::uint32_t draw = 0; draw < kSome; ++draw) {
    sum += drawn({{"ddp"}, {"a"}}, 8, draw).results[1].against->detectable;
  }
  const double truth = detectable_difference(kDifferenceSpread, 8, 0.05, kPower);
  EXPECT_NEAR(sum / kSome / truth, 1, 0.1);
}

/// A comparison whose differences are given, one a seed.
Comparison given(const std::vector<double>& differences, ComparisonRules rules = {},
                 std::vector<TuningEdge> base_edges = {}, std::vector<TuningEdge> edges = {}) {
  ComparedVariant ddp{.name = "ddp", .tuned = {{"inner.lr", "1"}}, .edges = base_edges};
  ComparedVariant a{.name = "a", .tuned = {{"inner.lr", "1"}}, .edges = edges};
  for (std::size_t i = 0; i < differences.size(); ++i) {
    const auto seed = static_cast<std::int64_t>(i) + 1;
    ddp.runs.push_back(cell("ddp", seed, kBaseLoss));
    a.runs.push_back(cell("a", seed, kBaseLoss + differences[i]));
  }
  return compare_variants(rules, {ddp, a});
}
std::vector<double> around(double middle, double spread, int n) {
  std::vector<double> values;
  for (int i = 0; i < n; ++i) {
    values.push_back(middle + (i % 2 == 0 ? spread : -spread));
  }
  return values;
}

TEST(Verdict, SaysWhichIsHigherAndByHowMuch) {
  const Comparison comparison = given(around(0.05, 0.01, 8));
  EXPECT_THAT(comparison.results[1].verdict,
              HasSubstr("final loss higher than that of ddp by 0.0500 (+0.0411 to +0.0589; p < "
                        "0.001), beyond the margin of 0.0200."));
  EXPECT_THAT(comparison.results[1].no_claim, IsEmpty());
  EXPECT_THAT(given(around(-0.05, 0.01, 8)).results[1].verdict, HasSubstr("lower than that of"));
  EXPECT_THAT(given(around(0.005, 0.001, 8)).results[1].verdict, HasSubstr("within the margin"));
  EXPECT_THAT(given(around(0.02, 0.01, 8)).results[1].verdict, HasSubstr("not shown to be within"));
}

TEST(Verdict, NothingShownIsNeitherEqualNorFree) {
  const Comparison open = given(around(0.001, 0.05, 8));
  EXPECT_THAT(open.results[1].verdict, HasSubstr("no difference from ddp shown"));
  EXPECT_THAT(open.results[1].verdict, HasSubstr("nor equivalence within 0.0200"));
  EXPECT_THAT(open.results[1].verdict, HasSubstr("find differences of"));
  EXPECT_EQ(open.results[1].no_claim, "neither a difference nor equivalence is shown");
  const Comparison close = given(around(0.001, 0.005, 8));
  EXPECT_THAT(close.results[1].verdict, HasSubstr("equivalent within 0.0200"));
  for (const Comparison& each : {open, close}) {
    EXPECT_THAT(each.results[1].verdict, Not(HasSubstr("equal")));
    EXPECT_THAT(each.results[1].verdict, Not(HasSubstr("free")));
  }
}

TEST(Verdict, TheSameLossesAreCalledThat) {
  EXPECT_THAT(given(std::vector<double>(8, 0.0)).results[1].verdict,
              HasSubstr("the losses of ddp to the last digit in every run"));
}

TEST(ToTarget, WithoutAClockThereIsNoTimeWhetherReachedOrNot) {
  ComparedVariant ddp{.name = "ddp"};
  ComparedVariant a{.name = "a"};
  for (std::int64_t seed = 1; seed <= 6; ++seed) {
    ddp.runs.push_back(cell("ddp", seed, 2));
    a.runs.push_back(cell("a", seed, 3));
    for (CellResult* run : {&ddp.runs.back(), &a.runs.back()}) {
      run->simulated = false;
      run->evals[0].clock_s = run->evals[1].clock_s = NAN;
    }
  }
  const Comparison comparison = compare_variants({.target = 2.1}, {ddp, a});
  EXPECT_EQ(comparison.results[0].to_target.reached, 6);
  EXPECT_EQ(comparison.results[1].to_target.reached, 0);
  EXPECT_TRUE(std::isnan(comparison.results[0].to_target.clock_s));
  EXPECT_TRUE(std::isnan(comparison.results[1].to_target.clock_s));
}

TEST(Verdict, FewSeedsAreTooFewToTell) {
  const Comparison comparison = given(around(0.5, 0.001, 5));
  EXPECT_THAT(comparison.results[1].verdict, HasSubstr("too few seeds to tell: 5"));
  EXPECT_FALSE(comparison.results[1].against->apart);
  const Comparison seven = given(around(0.5, 0.001, 7));
  EXPECT_TRUE(seven.results[1].against->apart);
  EXPECT_EQ(seven.results[1].no_claim, "7 seeds, a claim rests on 8");
  EXPECT_EQ(given({0.1}).results[1].no_claim, "1 seed, a claim rests on 8");
  EXPECT_THAT(seven.notes, testing::Contains(HasSubstr("a claim rests on 8")));
}

TEST(Verdict, AStrictConfidenceHoldsForAnyNumberOfSeeds) {
  for (const double confidence : {0.5, 0.999, 0.999999, 1 - 1e-12}) {
    for (int seeds = 1; seeds <= 9; ++seeds) {
      const AgainstBaseline against =
          *given(around(0.05, 0.01, seeds), {.confidence = confidence}).results[1].against;
      EXPECT_EQ(std::isinf(against.detectable), seeds < kFewestPairs) << confidence << " " << seeds;
    }
  }
}

TEST(Verdict, AFineMarginNeedsTwelveSeeds) {
  const ComparisonRules fine{.margin = 0.005};
  EXPECT_THAT(given(around(0, 0.001, 8), fine).results[1].no_claim, HasSubstr("needs 12"));
  EXPECT_THAT(given(around(0, 0.001, 12), fine).results[1].no_claim, IsEmpty());
  EXPECT_THAT(given(around(0.05, 0.001, 8), fine).results[1].no_claim, IsEmpty());
}

TEST(Verdict, AQuickComparisonIsNoResult) {
  EXPECT_EQ(given(around(0.05, 0.01, 8), {.quick = true}).results[1].no_claim,
            "--quick is not a result");
}

// Who was tuned to the edge may do better: losing then proves nothing, winning still does.
TEST(Verdict, AnEdgeOfTheGridVoidsWhatItMayTurn) {
  const std::vector<TuningEdge> edge = {{"inner.lr", "0.032", true}};
  const auto reason = [&](double difference, bool baseline) {
    const auto values = around(difference, 0.005, 8);
    return (baseline ? given(values, {}, edge) : given(values, {}, {}, edge)).results[1].no_claim;
  };
  EXPECT_THAT(reason(0.05, false), HasSubstr("a may do better beyond its grid: inner.lr = 0.032"));
  EXPECT_THAT(reason(-0.05, false), IsEmpty());
  EXPECT_THAT(reason(0.05, true), IsEmpty());
  EXPECT_THAT(reason(-0.05, true), HasSubstr("ddp may do better"));
  EXPECT_THAT(reason(0, false), HasSubstr("a may do better"));
  EXPECT_THAT(reason(0, true), HasSubstr("ddp may do better"));
  EXPECT_THAT(given({0, 0}, {}, edge).notes, testing::Contains(HasSubstr("ddp: edge of the grid")));
}

// Whoever had fewer trials or tokens may do better, too.
TEST(Verdict, UnlikeTuningOrLengthVoidsWhatItMayTurn) {
  const auto reason = [](double difference, const auto& change) {
    Comparison comparison = given(around(difference, 0.005, 8));
    change(comparison.variants[0], comparison.variants[1]);
    return compare_variants(comparison.rules, comparison.variants).results[1].no_claim;
  };
  const auto trials = [](ComparedVariant& more, ComparedVariant& fewer) {
    more.trials = 5;
    fewer.trials = 3;
  };
  const auto tokens = [](ComparedVariant& more, ComparedVariant& fewer) {
    for (CellResult& run : fewer.runs) run.tokens = 7;
    for (CellResult& run : more.runs) run.tokens = 8;
  };
  for (const bool by_trials : {true, false}) {
    const auto base_more = [&](ComparedVariant& base, ComparedVariant& a) {
      by_trials ? trials(base, a) : tokens(base, a);
    };
    const auto a_more = [&](ComparedVariant& base, ComparedVariant& a) { base_more(a, base); };
    const char* const a_words = by_trials ? "a was tuned with 3 trials" : "a trained on 7 tokens";
    const char* const base_words =
        by_trials ? "ddp was tuned with 3 trials" : "ddp trained on 7 tokens";
    EXPECT_THAT(reason(0.05, base_more), HasSubstr(a_words));
    EXPECT_THAT(reason(-0.05, base_more), IsEmpty());
    EXPECT_THAT(reason(0, base_more), HasSubstr(a_words));
    EXPECT_THAT(reason(0.05, a_more), IsEmpty());
    EXPECT_THAT(reason(-0.05, a_more), HasSubstr(base_words));
    EXPECT_THAT(reason(0, a_more), HasSubstr(base_words));
  }
}

// Eight times the same run is one observation, however large its difference.
TEST(Verdict, SeedsThatChangeNothingCarryNoClaim) {
  for (const int seeds : {8, 12}) {
    for (const double difference : {0.0, 0.05, 1.0 / 3}) {
      const Comparison comparison =
          given(std::vector<double>(static_cast<std::size_t>(seeds), difference));
      EXPECT_THAT(comparison.results[1].no_claim, HasSubstr("the seeds change nothing"));
    }
  }
  EXPECT_THAT(given(around(0.05, 0.001, 8)).results[1].no_claim, IsEmpty());
}

TEST(Verdict, AFailedRunIsNotComparedAway) {
  ComparedVariant ddp{.name = "ddp"};
  ComparedVariant a{.name = "a"};
  for (std::int64_t seed = 1; seed <= 8; ++seed) {
    ddp.runs.push_back(cell("ddp", seed, 2));
    a.runs.push_back(cell("a", seed, 1));
  }
  a.runs[2].status = CellStatus::kFailed;
  a.runs[2].cause = "step 3: the loss is nan";
  a.runs[2].evals.clear();
  const Comparison comparison = compare_variants({.target = 1.5}, {ddp, a});
  EXPECT_FALSE(comparison.results[1].against);
  EXPECT_THAT(comparison.results[1].verdict, HasSubstr("failed in 1 of 8 runs (seed 3: step 3"));
  EXPECT_EQ(comparison.results[1].no_claim, "not compared");
  EXPECT_EQ(comparison.results[1].to_target.reached, 7);
  EXPECT_EQ(comparison.results[1].final_loss.n, 7);
  const Comparison other = compare_variants({.baseline = 1}, {ddp, a});
  EXPECT_THAT(other.results[0].verdict,
              HasSubstr("the baseline failed in 1 of 8 runs (seed 3: step 3: the loss is nan)."));
}

TEST(Margin, IsAShareOfTheLossAboveTheFloor) {
  EXPECT_NEAR(given(around(0, 0.001, 8)).margin, 0.02, 1e-12);
  EXPECT_NEAR(given(around(0, 0.001, 8), {.floor = 1.5}).margin, 0.005, 1e-12);
  EXPECT_NEAR(*given(around(0, 0.001, 8)).target, 2.02, 1e-12);
  EXPECT_NEAR(*given(around(0, 0.001, 8), {.floor = 1.5}).target, 2.005, 1e-12);
  EXPECT_NEAR(*given(around(0, 0.001, 8), {.target = 2.5}).target, 2.5, 1e-12);
}

TEST(Margin, IsNoneAtTheFloor) {
  const Comparison comparison = given(around(0.1, 0.01, 8), {.floor = kBaseLoss});
  EXPECT_FALSE(comparison.results[1].against);
  EXPECT_THAT(comparison.results[1].verdict, HasSubstr("is not above the entropy"));
}

TEST(ToTarget, IsInterpolatedBetweenEvaluations) {
  const CellResult run = cell("a", 1, 2.0);  // 2.5 at step 50, 2.0 at step 100
  const auto there = reaching(run, 2.1, {});
  ASSERT_TRUE(there);
  EXPECT_EQ(there->step, 90);
  EXPECT_NEAR(there->clock_s, 90, 1e-9);
  EXPECT_NEAR(there->payload_bytes, 9e6, 1e-3);
  EXPECT_NEAR(there->wire_bytes, 1.08e7, 1e-3);
  EXPECT_EQ(reaching(run, 2.5, {})->step, 50);
  EXPECT_EQ(reaching(run, 7.0, {})->step, 50);  // the first evaluation: no earlier is known
  EXPECT_FALSE(reaching(run, 1.99, {}));
  EXPECT_TRUE(reaching(run, 2.1, {.budget_steps = 90}));
  EXPECT_FALSE(reaching(run, 2.1, {.budget_steps = 89}));
  EXPECT_FALSE(reaching(run, 2.1, {.budget_s = 89}));
}

TEST(ToTarget, MissesCountAsInfinite) {
  const Comparison most = given({0, 0, 0, 0, 0, 0.3, 0.3, 0.3}, {.target = 2.1});
  EXPECT_EQ(most.results[1].to_target.reached, 5);
  EXPECT_EQ(most.results[1].to_target.steps, 90);
  EXPECT_THAT(most.results[1].verdict, HasSubstr("Missed the target in 3 of 8 runs."));
  const Comparison few = given({0, 0, 0, 0.3, 0.3, 0.3, 0.3, 0.3}, {.target = 2.1});
  EXPECT_TRUE(std::isinf(few.results[1].to_target.steps));
  EXPECT_EQ(few.eval_every, 50);
}

// A saving told without its price would mislead.
TEST(ToTarget, SavingsAndPricesAreToldAsFactors) {
  const auto verdict = [](double bytes, double clock, int base_misses) {
    ComparedVariant ddp{.name = "ddp"};
    ComparedVariant a{.name = "a"};
    for (std::int64_t seed = 1; seed <= 7; ++seed) {
      ddp.runs.push_back(cell("ddp", seed, seed <= base_misses ? 3 : 2));
      a.runs.push_back(cell("a", seed, 2));
      for (CellEval& eval : a.runs.back().evals) {
        eval.wire_bytes *= bytes;
        eval.clock_s *= clock;
      }
    }
    return compare_variants({.target = 2.1}, {ddp, a}).results[1].verdict;
  };
  EXPECT_THAT(verdict(1.0 / 40, 0.4, 0),
              HasSubstr("To the target: 40x fewer bytes and 2.5x less simulated time than ddp."));
  EXPECT_THAT(verdict(1.0 / 40, 3, 0),
              HasSubstr("To the target: 40x fewer bytes but 3x more simulated time than ddp."));
  EXPECT_THAT(verdict(2, 0.25, 0),
              HasSubstr("To the target: 2x more bytes but 4x less simulated time than ddp."));
  EXPECT_THAT(verdict(1.5, 1.25, 0),
              HasSubstr("To the target: 1.5x more bytes and 1.25x more simulated time than ddp."));
  EXPECT_THAT(verdict(2e8, 1, 0), HasSubstr("To the target: 2e+08x more bytes than ddp."));
  EXPECT_THAT(verdict(0.5, 1, 3),
              HasSubstr("2x fewer bytes than ddp, which missed it in 3 of 7 runs."));
  EXPECT_THAT(verdict(0.5, 1, 4), HasSubstr("Reached the target in every run."));  // ddp: no median
}

TEST(Notes, NameWhatDiffersOrWasNotDone) {
  Comparison comparison = given(around(0, 0.01, 8));
  EXPECT_THAT(comparison.notes, IsEmpty());
  comparison.variants[1].runs[0].tokens = 7;
  comparison.variants[1].runs[1].version = "w";
  comparison.variants[0].tuned.clear();
  comparison.variants[1].tuned.clear();
  const Comparison again = compare_variants(comparison.rules, comparison.variants);
  EXPECT_THAT(again.notes,
              testing::UnorderedElementsAre(HasSubstr("nothing was tuned"),
                                            HasSubstr("7 to 1000 tokens"), HasSubstr("2 builds")));
}

}  // namespace
}  // namespace isthmus::report::this_file
