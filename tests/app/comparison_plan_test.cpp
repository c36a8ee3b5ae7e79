// SPDX-License-Identifier: Apache-2.0
// Which cells a comparison takes, in which order, and that the order does not matter.
#include "app/compare/comparison_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "app/common/commands.h"
#include "app/compare/cell_runner.h"
#include "app/compare/comparison_checks.h"
#include "isthmus/errors.h"

namespace isthmus::app::this_file {
namespace {

using report::CellStage;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kFile = R"([model]
layers = 1
d_model = 32
heads = 2
[data]
source = "synth:markov1"
[train]
steps = 80
global_batch = "256 tok"
context = 32
[inner]
lr = 1e-3
[eval]
every = 10
[sim]
step_time = "1s"
[compare]
seeds = 8
tune = { seeds = 1, space = { "inner.lr" = [1e-3, 2e-3, 4e-3] } }
[variant.ddp]
[variant.low]
inner.clip = 0.5
[variant.high]
inner.clip = 2.0
)";

Experiment experiment(const std::string& more = "",
                      const std::vector<std::string>& overrides = {}) {
  return Experiment::load_text(std::string(kFile) + more, "plan.toml", overrides, schema_context());
}

/// Best at 8e-3 (two beyond the grid), but for "low", which is best inside it.
double made_up_loss(const Cell& cell) {
  if (cell.point.empty()) {
    return 2;
  }
  const double best = cell.config.inner.clip == 0.5 ? 2e-3 : 8e-3;
  return 2 + std::abs(std::log(cell.config.inner.lr / best)) +
         0.001 * static_cast<double>(cell.seed);
}
report::CellResult made_up(const Cell& cell) {
  const double loss = made_up_loss(cell);
  return {.key = cell.key,
          .stage = cell.stage,
          .variant = cell.directory,
          .method = cell.config.method,
          .seed = cell.seed,
          .evals = {{80, loss, 80, 1, 1}}};
}

struct Ran {
  std::vector<Cell> cells;
  std::vector<report::ComparedVariant> results;
};
/// Runs the plan with up to `jobs` cells under way, of which the newest or the oldest ends first.
Ran run(ComparisonPlan& plan, std::size_t jobs, bool newest_first) {
  Ran ran;
  std::vector<Cell> under_way;
  while (!plan.done()) {
    while (under_way.size() < jobs) {
      auto cell = plan.next();
      if (!cell) {
        break;
      }
      ran.cells.push_back(*cell);
      under_way.push_back(*std::move(cell));
    }
    if (under_way.empty()) {
      break;
    }
    const auto ended = newest_first ? under_way.end() - 1 : under_way.begin();
    plan.finish(*ended, made_up(*ended));
    under_way.erase(ended);
  }
  if (plan.done()) {
    ran.results = plan.results();
  }
  return ran;
}

TEST(ComparisonPlan, EveryVariantGetsAsManyTrialsWhereverTheyGo) {
  const Experiment file = experiment();
  ComparisonPlan plan(file, {});
  EXPECT_EQ(plan.total(), 3U * (3 + 2 + 8));
  const Ran ran = run(plan, 1, false);
  ASSERT_EQ(ran.results.size(), 3U);
  EXPECT_EQ(ran.cells.size(), plan.total());
  for (const report::ComparedVariant& variant : ran.results) {
    EXPECT_EQ(variant.trials, 5) << variant.name;
    EXPECT_EQ(variant.runs.size(), 8U);
  }
  EXPECT_THAT(ran.results[0].tuned, ElementsAre(testing::Pair("inner.lr", "0.008")));
  EXPECT_THAT(ran.results[1].tuned, ElementsAre(testing::Pair("inner.lr", "0.002")));
  EXPECT_TRUE(ran.results[0].edges.empty());  // 16e-3 was tried, and worse
  EXPECT_TRUE(ran.results[1].edges.empty());
}

// What seed 0 alone would choose, 4e-3, is bad on the second seed.
TEST(ComparisonPlan, ARateIsChosenByTheMeanOfTheTuningSeeds) {
  const auto chosen = [](const std::string& seeds) {
    const Experiment file =
        experiment("", {"compare.tune.seeds=" + seeds, "compare.tune.follow_ups=0"});
    ComparisonPlan plan(file, {});
    std::set<std::int64_t> tried;
    while (auto cell = plan.next()) {
      report::CellResult result = made_up(*cell);
      const bool trial = cell->stage == CellStage::kTune;
      if (trial) tried.insert(cell->seed);
      result.evals.back().loss = 2 - 100 * cell->config.inner.lr;
      if (trial && cell->seed != 0 && cell->config.inner.lr == 4e-3) result.evals.back().loss += 3;
      plan.finish(*cell, result);
    }
    EXPECT_TRUE(plan.done());
    EXPECT_EQ(plan.results()[0].trials, 3);
    EXPECT_EQ(plan.results()[0].trial_seeds, std::stoi(seeds));
    EXPECT_EQ(plan.results()[0].runs.size(), 8U);
    EXPECT_EQ(std::ssize(tried), std::stoi(seeds));
    for (std::int64_t seed = 1; seed <= 8; ++seed) EXPECT_FALSE(tried.contains(seed)) << seed;
    return plan.results()[0].tuned[0].second;
  };
  EXPECT_EQ(chosen("1"), "0.004");
  EXPECT_EQ(chosen("2"), "0.002");
  EXPECT_EQ(chosen("3"), "0.002");
}

TEST(ComparisonPlan, EverySeedOfATrialIsACellOfItsOwn) {
  const Experiment file = experiment("", {"compare.tune.seeds=2"});
  ComparisonPlan plan(file, {});
  EXPECT_EQ(plan.total(), 3U * (2 * (3 + 2) + 8));
  EXPECT_THAT(plan.trial_seeds(), ElementsAre(0, 1000000));
  const Ran ran = run(plan, 3, true);
  EXPECT_EQ(ran.cells.size(), plan.total());
  std::set<std::string> keys, folders;
  for (const Cell& cell : ran.cells) {
    keys.insert(cell.key);
    folders.insert(cell.directory);
  }
  EXPECT_EQ(keys.size(), ran.cells.size());
  EXPECT_EQ(folders.size(), ran.cells.size());
  EXPECT_TRUE(folders.contains("ddp/tune-01"));
  EXPECT_TRUE(folders.contains("ddp/tune-01-seed-1000000"));
  EXPECT_EQ(ran.results[2].tuned[0].second, "0.008");
  EXPECT_EQ(ran.results[2].trials, 5);
}

TEST(ComparisonPlan, TrialsOnRecordAreGoneOnWith) {
  const Experiment file = experiment("", {"compare.tune.seeds=2"});
  EXPECT_THAT(ComparisonPlan(file, {.tried = {9, 0, 9}}).trial_seeds(), ElementsAre(0, 9));
  const Experiment more = experiment("", {"compare.tune.seeds=2", "compare.seeds=9"});
  EXPECT_THAT(ComparisonPlan(more, {.tried = {9, 0, 9}}).trial_seeds(), ElementsAre(0, 1000000));
}

TEST(ComparisonPlan, AnEdgeThatTheFollowUpsDidNotLeaveIsTold) {
  const Experiment file = experiment("", {"compare.tune.follow_ups=1"});
  ComparisonPlan plan(file, {});
  const Ran ran = run(plan, 1, false);
  ASSERT_EQ(ran.results[0].edges.size(), 1U);
  EXPECT_EQ(ran.results[0].edges[0].value, "0.008");
  EXPECT_TRUE(ran.results[1].edges.empty());
}

TEST(ComparisonPlan, WhatIsFoundDoesNotDependOnTheOrder) {
  const Experiment file = experiment();
  std::set<std::string> first;
  for (const std::size_t jobs : {1, 3, 50}) {
    for (const bool newest_first : {false, true}) {
      ComparisonPlan plan(file, {});
      const Ran ran = run(plan, jobs, newest_first);
      ASSERT_TRUE(plan.done());
      std::set<std::string> keys;
      for (const Cell& cell : ran.cells) {
        keys.insert(cell.directory + " " + cell.key);
      }
      first = first.empty() ? keys : first;
      EXPECT_EQ(keys, first) << jobs;
      EXPECT_EQ(ran.results[2].tuned[0].second, "0.008");
    }
  }
}

TEST(ComparisonPlan, TrialsAndRunsShareNeitherSeedNorValidationTokens) {
  const Experiment file = experiment();
  ComparisonPlan plan(file, {});
  for (const Cell& cell : run(plan, 4, true).cells) {
    const bool trial = cell.stage == CellStage::kTune;
    EXPECT_EQ(cell.config.eval.part, trial ? "second" : "first");
    EXPECT_EQ(cell.config.run.seed == 0, trial);
    EXPECT_EQ(cell.config.eval.every.steps, trial ? 0 : 10);
    EXPECT_TRUE(cell.simulated);
  }
}

TEST(ComparisonPlan, WithoutASpaceThereAreNoTrials) {
  std::string text = kFile;
  text.replace(text.find("tune ="), text.find("[variant.ddp]") - text.find("tune ="), "");
  const Experiment file = Experiment::load_text(text, "plan.toml", {}, schema_context());
  ComparisonPlan plan(file, {});
  const Ran ran = run(plan, 2, false);
  EXPECT_EQ(ran.cells.size(), 24U);
  EXPECT_TRUE(ran.results[0].tuned.empty());
  EXPECT_EQ(ran.cells[0].config.eval.part, "whole");
}

TEST(ComparisonPlan, VariantsWhoseTrialsAllFailAreRunAllTheSame) {
  const Experiment file = experiment("", {"compare.seeds=2"});
  ComparisonPlan plan(file, {});
  while (auto cell = plan.next()) {
    report::CellResult result = made_up(*cell);
    if (cell->config.inner.clip == 2.0) {
      result.status = report::CellStatus::kFailed;
    }
    plan.finish(*cell, result);
  }
  ASSERT_TRUE(plan.done());
  EXPECT_TRUE(std::isinf(plan.results()[2].tuning_loss));
  EXPECT_EQ(plan.results()[2].tuned[0].second, "0.001");
  EXPECT_EQ(plan.results()[2].trials, 3);  // nothing to follow up
}

TEST(ComparisonPlan, QuickIsAQuarterOfTheLengthOnThreeSeeds) {
  const Experiment file = experiment();
  ComparisonPlan plan(file, {.quick = true});
  EXPECT_THAT(plan.seeds(), ElementsAre(1, 2, 3));
  for (const Cell& cell : plan.outline()) {
    EXPECT_EQ(cell.config.train.steps, 20);
  }
  EXPECT_NE(plan.outline()[0].key, ComparisonPlan(file, {}).outline()[0].key);
}

TEST(ComparisonPlan, OnlyKeepsTheBaseline) {
  const Experiment file = experiment("", {"compare.baseline=low"});
  ComparisonPlan plan(file, {.only = {"high"}});
  EXPECT_THAT(plan.variants(), ElementsAre(1, 2));
  EXPECT_EQ(plan.baseline(), 0U);
  EXPECT_THROW(ComparisonPlan(file, {.only = {"low"}}), UsageError);
  try {
    ComparisonPlan(file, {.only = {"hihg"}});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'high'?"));
  }
}

TEST(ComparisonPlan, KeysFollowWhatACellComputesAndNothingElse) {
  const auto keys = [](const std::vector<std::string>& overrides, const std::string& inputs = "") {
    const Experiment file = experiment("", overrides);
    std::vector<std::string> all;
    for (const Cell& cell :
         ComparisonPlan(file, {.inputs = [&](const Config&) { return inputs; }}).outline()) {
      all.push_back(cell.key);
    }
    return all;
  };
  const auto base = keys({});
  EXPECT_EQ(std::set<std::string>(base.begin(), base.end()).size(), base.size());
  EXPECT_EQ(base, keys({"run.name=other", "compare.margin=3%", "target.value=2.0",
                        "train.threads=1", "compare.checkpoints=true"}));
  EXPECT_NE(base[0], keys({"inner.weight_decay=0.2"})[0]);
  EXPECT_NE(base[0], keys({"sim.step_time=2s"})[0]);
  EXPECT_NE(base[0], keys({"train.steps=81"})[0]);
  EXPECT_NE(base[0], keys({}, "other data")[0]);
  EXPECT_EQ(base[0], keys({"compare.seeds=12"})[0]);
  EXPECT_EQ(base[0], keys({"variant.high.inner.clip=3.0"})[0]);
  EXPECT_NE(base.back(), keys({"variant.high.inner.clip=3.0"}).back());
}

TEST(Weaknesses, ANamesakeOnAnotherClockIsTold) {
  const auto notes = [](const std::vector<std::string>& overrides) {
    const Experiment file = experiment("", overrides);
    return weaknesses_of(file, ComparisonPlan(file, {}), [](const Config&) {
      return DataFacts{1'000'000, 1};
    });
  };
  EXPECT_THAT(notes({}), testing::IsEmpty());
  EXPECT_THAT(notes({"sim.step_time=2s", "variant.low.inner.eps=1e-6"}), testing::IsEmpty());
  EXPECT_THAT(notes({"variant.low.sim.step_time=100ms"}),
              ElementsAre(HasSubstr("low: its clock is not that of ddp (sim.step_time")));
}

// Only where rates are tuned at all: elsewhere nothing was promised.
TEST(Weaknesses, AnOuterMomentumThatIsNotTunedIsTold) {
  const std::string text = R"([variant.far]
run = { workers = 2 }
outer = { method = "diloco", H = 4 }
link = [{ between = ["*", "*"], rate = "1Gbit/s" }]
)";
  const auto notes = [&](const std::string& space) {
    const Experiment file = experiment(text + space, {});
    return weaknesses_of(file, ComparisonPlan(file, {}), [](const Config&) {
      return DataFacts{1'000'000, 1};
    });
  };
  EXPECT_THAT(notes(""), testing::Contains(HasSubstr("outer momentum was not tuned (0.9 in far)")));
  EXPECT_THAT(notes("tune = { space = { \"outer.momentum\" = [0.3, 0.6, 0.9] } }\n"),
              testing::Not(testing::Contains(HasSubstr("outer momentum"))));
}

// localsgd has no outer momentum that could settle.
TEST(Weaknesses, FewRoundsAreToldOfMethodsWithAnOuterMomentumAlone) {
  const auto notes = [](const std::string& method) {
    const std::string text = "[variant.far]\nrun = { workers = 2 }\nouter = { method = \"" +
                             method +
                             "\", H = 8 }\nlink = [{ between = [\"*\", \"*\"], rate = "
                             "\"1Gbit/s\" }]\n";
    const Experiment file = experiment(text, {});
    return weaknesses_of(file, ComparisonPlan(file, {}), [](const Config&) {
      return DataFacts{1'000'000, 1};
    });
  };
  EXPECT_THAT(notes("diloco"),
              testing::Contains(HasSubstr("fewer than the 20 that an outer momentum needs")));
  EXPECT_THAT(notes("localsgd"), testing::Not(testing::Contains(HasSubstr("momentum"))));
}

TEST(ComparisonPlan, CostShrinksToNothing) {
  const Experiment file = experiment();
  ComparisonPlan plan(file, {});
  EXPECT_NEAR(plan.remaining_cost(), plan.total_cost(), 1e-6 * plan.total_cost());
  run(plan, 3, false);
  EXPECT_EQ(plan.remaining_cost(), 0);
  EXPECT_EQ(plan.remaining(), 0U);
}

std::string refusal(const std::string& more, const std::vector<std::string>& overrides,
                    const PlanOptions& options = {}) {
  try {
    const Experiment file = experiment(more, overrides);
    const ComparisonPlan plan(file, options);
    return "none";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ComparisonPlan, LossesAreOfTheSameWindows) {
  EXPECT_THAT(refusal("", {"variant.low.data.source=synth:markov2"}),
              HasSubstr("variant 'low' has data.source = synth:markov2, 'ddp' has synth:markov1"));
  EXPECT_THAT(refusal("", {"variant.low.data.val_fraction=0.2"}),
              HasSubstr("data.val_fraction = 0.2"));
  EXPECT_THAT(refusal("", {"variant.low.train.context=16"}), HasSubstr("train.context = 16"));
  EXPECT_THAT(refusal("", {"variant.high.eval.tokens=320"}), HasSubstr("eval.tokens = 320"));
  EXPECT_THAT(refusal("", {"variant.high.eval.tokens=all"}), HasSubstr("eval.tokens = all"));
  EXPECT_EQ(refusal("", {"eval.tokens=320", "variant.high.eval.every=20"}), "none");
}

TEST(ComparisonPlan, OnlyDoesNotMoveTheTarget) {
  const std::vector<std::string> relative = {"target.relative_to=high"};
  EXPECT_THAT(refusal("", relative, {.only = {"low"}}), HasSubstr("--only leaves out 'high'"));
  EXPECT_EQ(refusal("", relative, {.only = {"high"}}), "none");
  EXPECT_EQ(refusal("", relative), "none");
}

TEST(ComparisonPlan, ABudgetOfTimeNeedsAClock) {
  EXPECT_THAT(refusal("", {"sim.step_time=0s", "budget.sim_time=1h"}),
              HasSubstr("budget.sim_time without a simulated clock"));
  EXPECT_EQ(refusal("", {"budget.sim_time=1h"}), "none");
}

TEST(ComparisonPlan, ClocksMustBeAllOrNone) {
  EXPECT_THAT(refusal("", {"sim.step_time=0s"}), "none");  // nobody has a clock
  EXPECT_THAT(refusal("", {"variant.low.sim.step_time=0s"}),
              HasSubstr("'high' is simulated and 'low' is not"));
  EXPECT_THAT(refusal("[variant.two]\nrun = { workers = 2 }\nsim = { step_time = \"0s\" }\n"
                      "link = [{ between = [\"*\", \"*\"], rate = \"1Gbit/s\" }]\n",
                      {}),
              HasSubstr("has links and no step time"));
}

TEST(Jobs, AreBoundedByCoresAndMemory) {
  EXPECT_EQ(job_limit(8, 1, 1000, 1'000'000, 0).jobs, 8);
  EXPECT_EQ(job_limit(8, 3, 1000, 1'000'000, 0).jobs, 2);
  EXPECT_EQ(job_limit(2, 4, 1000, 1'000'000, 0).jobs, 1);
  EXPECT_EQ(job_limit(8, 1, 1000, 4000, 0).jobs, 3);
  EXPECT_THAT(job_limit(8, 1, 1000, 4000, 0).reason, HasSubstr("memory"));
  EXPECT_EQ(job_limit(8, 1, 1000, 100, 0).jobs, 1);
  EXPECT_EQ(job_limit(8, 1, 1000, 0, 0).jobs, 8);  // the system does not say
  EXPECT_EQ(job_limit(8, 1, 1000, 4000, 5).jobs, 5);
}

// Threads at work: slots x threads of each worker, or the workers on real threads.
TEST(Jobs, ACellTakesItsShareOfTheCores) {
  for (const int cores : {1, 2, 3, 8, 64}) {
    for (const std::size_t together : {1, 2, 5, 64}) {
      for (const int workers : {1, 2, 8}) {
        const CellThreads cell = cell_threads(cores, together, workers);
        const int each = std::max(1, cell.threads / workers);
        const int share = std::max(1, cores / static_cast<int>(together));
        EXPECT_LE(cell.slots * each, share) << cores << " " << together << " " << workers;
        EXPECT_GE(2 * cell.slots * each, share);
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::app::this_file
