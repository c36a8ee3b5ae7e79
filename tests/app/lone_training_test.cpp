// SPDX-License-Identifier: Apache-2.0
// How far a site that was cut off trains on alone, and on what.
#include "app/lone_training.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/run_parts.h"
#include "app/timed_inner_loop.h"
#include "core/system_runtime.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kFile = R"([model]
arch = "llama"
layers = 1
d_model = 16
heads = 2
vocab = 64
[data]
source = "synth:zipf:vocab=64,tokens=9k"
[train]
steps = 1000
global_batch = "64 tok"
context = 16
threads = 1
[outer]
method = "diloco"
H = 4
[[site]]
name = "east"
[[site]]
name = "west"
)";
constexpr std::int64_t kTokensOfAStep = 32;  // of each of the two sites
constexpr StepIndex kCutOffAfter(7);
constexpr Rank kSelf(1);

/// The model of the second site, as it was when it was cut off, and on its own data.
struct Site {
  explicit Site(const std::vector<std::string>& overrides = {}, const std::string& more = "")
      : config(
            load_config_text(std::string(kFile) + more, "run.toml", overrides, schema_context())),
        plan(make_training_plan(config, std::vector<int>{0, 1}, kSelf)),
        storage(std::make_unique<SystemStorage>()),
        batches(std::make_unique<StepBatches>()),
        model(std::make_unique<LanguageModelLoop>(
            language_model_options(config, plan, kSelf),
            [from = batches.get()](StepIndex t) { return from->from(t); })) {}

  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> all;
    for (const Parameter& parameter : model->parameters()) {
      all.insert(all.end(), parameter.values.begin(), parameter.values.end());
    }
    return all;
  }
  [[nodiscard]] std::unique_ptr<LoneTraining> alone() {
    Fragment all{.id = FragmentId(0), .parameters = {}, .elements = 0};
    for (const Parameter& parameter : model->parameters()) {
      all.parameters.push_back(all.parameters.size());
      all.elements += parameter.elements.size();
    }
    outer::OwnWork work{.step = kCutOffAfter, .trained = kCutOffAfter, .parts = {}};
    work.parts.resize(1);  // its round has failed
    return std::make_unique<LoneTraining>(LoneTraining::Parts{.config = config,
                                                              .plan = plan,
                                                              .self = kSelf,
                                                              .batches = std::move(batches),
                                                              .model = std::move(model),
                                                              .work = std::move(work),
                                                              .fragments = std::span(&all, 1)});
  }
  /// What the values gain by these steps, taken one after another here.
  [[nodiscard]] std::vector<float> gain(const std::vector<std::int64_t>& steps) {
    const Dataset data = Dataset::open(*storage, config.data, {});
    BatchSource source(data, batch_plan(config, plan), kSelf.value());
    batches->from = [&](StepIndex t) { return source.at(t.value() - 1); };
    const std::vector<float> before = values();
    for (const std::int64_t t : steps) (void)model->train_step(StepIndex(t));
    std::vector<float> gained = values();
    for (std::size_t i = 0; i < gained.size(); ++i) gained[i] -= before[i];
    return gained;
  }

  Config config;
  TrainingPlan plan;
  std::unique_ptr<SystemStorage> storage;
  std::unique_ptr<StepBatches> batches;
  std::unique_ptr<InnerLoop> model;
};

void await_end(const LoneTraining& training) {
  SystemRuntime runtime;
  while (training.trains()) {
    runtime.sleep_until(runtime.clock().now() + std::chrono::milliseconds(1));
  }
}

std::vector<std::int64_t> steps_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> steps;
  for (std::int64_t k = 0; k < count; ++k) steps.push_back(first + k);
  return steps;
}

TEST(LoneTraining, TakesSoManyWindowsOfTheSitesNextStepsAndEnds) {
  for (const std::int64_t windows : {1, 3}) {
    const std::vector<std::string> key = {"net.max_solo_rounds=" + std::to_string(windows)};
    Site site(key);
    const std::unique_ptr<LoneTraining> alone = site.alone();
    EXPECT_FALSE(alone->trains());
    alone->begin();
    await_end(*alone);
    const auto work = alone->end();
    ASSERT_TRUE(work);
    const std::int64_t steps = 4 * windows;
    EXPECT_EQ(work->alone_steps, steps);
    EXPECT_EQ(work->alone_tokens, steps * kTokensOfAStep);
    EXPECT_EQ(work->parts[0].tokens, steps * kTokensOfAStep);
    EXPECT_EQ(work->trained, StepIndex(7 + steps));
    EXPECT_EQ(work->step, kCutOffAfter);
    EXPECT_EQ(work->parts[0].beyond, Site(key).gain(steps_from(8, steps)));
  }
}

TEST(LoneTraining, EndsBetweenTwoStepsWhenTheOthersAreFound) {
  const std::vector<std::string> key = {"net.max_solo_rounds=200"};
  Site site(key);
  const std::unique_ptr<LoneTraining> alone = site.alone();
  alone->begin();
  const auto work = alone->end();
  EXPECT_FALSE(alone->trains());
  ASSERT_TRUE(work);
  EXPECT_LT(work->alone_steps, 800);
  if (work->alone_steps > 0) {
    EXPECT_EQ(work->parts[0].beyond, Site(key).gain(steps_from(8, work->alone_steps)));
  }
}

TEST(LoneTraining, TakesNoStepBehindTheRunsLast) {
  Site site({"net.max_solo_rounds=200", "train.steps=10"});
  const std::unique_ptr<LoneTraining> alone = site.alone();
  alone->begin();
  await_end(*alone);
  const auto work = alone->end();
  ASSERT_TRUE(work);
  EXPECT_EQ(work->alone_steps, 3);
  EXPECT_EQ(work->trained, StepIndex(10));
}

// A window is of the run's clock, and a slow site takes fewer of its steps.
TEST(LoneTraining, GoesAtTheSitesPace) {
  Site site({}, "pace = 0.5\n");
  const std::unique_ptr<LoneTraining> alone = site.alone();
  alone->begin();
  await_end(*alone);
  const auto work = alone->end();
  ASSERT_TRUE(work);
  std::vector<std::int64_t> taken;
  for (const std::int64_t t : steps_from(8, 4)) {
    if (takes_step(0.5, StepIndex(t))) taken.push_back(t);
  }
  EXPECT_EQ(work->alone_steps, 2);
  EXPECT_EQ(work->trained, StepIndex(11));
  EXPECT_EQ(work->parts[0].beyond, Site({}, "pace = 0.5\n").gain(taken));
}

TEST(LoneTraining, WithoutDataHasTheWorkOfBefore) {
  Site site({"data.source=\"text:/nowhere/at/all\""});
  const std::unique_ptr<LoneTraining> alone = site.alone();
  alone->begin();
  await_end(*alone);
  const auto work = alone->end();
  ASSERT_TRUE(work);
  EXPECT_EQ(work->alone_steps, 0);
  EXPECT_EQ(work->step, kCutOffAfter);
}

TEST(LoneTraining, ThatHasNotBegunGivesTheWorkBack) {
  Site site;
  const auto work = site.alone()->end();
  ASSERT_TRUE(work);
  EXPECT_TRUE(work->parts[0].beyond.empty());
  EXPECT_EQ(work->alone_steps, 0);
}

}  // namespace
}  // namespace isthmus::app
