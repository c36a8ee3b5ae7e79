// SPDX-License-Identifier: Apache-2.0
// How far a site that was cut off trains on alone, and on what.
#include "session/run/offline_training.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "app/train/config_to_options.h"
#include "app/train/language_model_trainer.h"
#include "core/base/log.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "session/run/timed_inner_loop.h"

namespace isthmus::app::this_file {
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
constexpr WorkerId kSelf(1);

/// The model of the second site, as it was when it was cut off, and on its own data.
struct Site {
  explicit Site(const std::vector<std::string>& overrides = {}, const std::string& more = "")
      : config(
            load_config_text(std::string(kFile) + more, "run.toml", overrides, schema_context())),
        plan(make_training_plan(config, std::vector<int>{0, 1}, kSelf)),
        trainer(std::make_unique<LanguageModelTrainer>(
            LanguageModelTrainer::Setup{.config = config,
                                        .plan = plan,
                                        .storage = storage,
                                        .data = session_data(),
                                        .on_batch =
                                            [ask = hook](StepIndex t) {
                                              if (*ask) (*ask)(t);
                                            }},
            kSelf, SystemRuntime())) {}
  /// Those of the worker's session, which the trainer uses no more: not those of `config`, which
  /// may be missing.
  [[nodiscard]] static const Dataset& session_data() {
    static const Dataset data = Dataset::open(
        SystemStorage(), {.source = "synth:zipf:vocab=64,tokens=9k"}, std::filesystem::path());
    return data;
  }

  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> all;
    for (const Parameter& parameter : trainer->loop().parameters()) {
      all.insert(all.end(), parameter.values.begin(), parameter.values.end());
    }
    return all;
  }
  /// `open`: of its one fragment; nothing: its round has failed.
  [[nodiscard]] std::unique_ptr<OfflineTraining> alone(outer::UncommittedDelta::Part open = {},
                                                       std::unique_ptr<Runtime> runtime = nullptr) {
    Fragment all{.id = FragmentId(0), .parameters = {}, .elements = 0};
    for (const Parameter& parameter : trainer->loop().parameters()) {
      all.parameters.push_back(all.parameters.size());
      all.elements += parameter.elements.size();
    }
    outer::UncommittedDelta work{.step = kCutOffAfter, .trained = kCutOffAfter, .parts = {}};
    work.parts.push_back(std::move(open));
    return std::make_unique<OfflineTraining>(OfflineTraining::Parts{.config = config,
                                                                    .plan = plan,
                                                                    .self = kSelf,
                                                                    .trainer = std::move(trainer),
                                                                    .work = std::move(work),
                                                                    .fragments = std::span(&all, 1),
                                                                    .runtime = std::move(runtime)});
  }
  /// What the values gain by these steps, taken one after another here.
  [[nodiscard]] std::vector<float> gain(const std::vector<std::int64_t>& steps) {
    trainer->train_alone();
    const std::vector<float> before = values();
    for (const std::int64_t t : steps) (void)trainer->loop().train_step(StepIndex(t));
    std::vector<float> gained = values();
    for (std::size_t i = 0; i < gained.size(); ++i) gained[i] -= before[i];
    return gained;
  }

  Config config;
  TrainingPlan plan;
  SystemStorage storage;
  /// Called on the task of the steps when one of them asks for its batch.
  using Before = std::function<void(StepIndex t)>;
  std::shared_ptr<Before> hook =
      std::make_shared<Before>();  // the trainer's too, which outlives this
  std::unique_ptr<Trainer> trainer;
};

/// The warnings and what else is told, while it lives.
class Told {
 public:
  Told() {
    set_log_sink([this](LogLevel, std::string_view line) {
      const std::scoped_lock lock(mutex_);
      text_ += std::string(line) + "\n";
    });
  }
  ~Told() { set_log_sink({}); }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  [[nodiscard]] std::string text() const {
    const std::scoped_lock lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// A machine that refuses another thread.
class NoThreads final : public Runtime {
 public:
  [[nodiscard]] const Clock& clock() const override { return real_.clock(); }
  void sleep_until(TimePoint time) override { real_.sleep_until(time); }
  [[nodiscard]] std::unique_ptr<Task> spawn(std::string, std::function<void()>) override {
    throw SystemError("no thread for task 'alone'");
  }
  [[nodiscard]] std::unique_ptr<WaitQueue> make_wait_queue() override {
    return real_.make_wait_queue();
  }
  void compute(Duration duration, const std::function<void()>& work) override {
    real_.compute(duration, work);
  }
  [[nodiscard]] bool simulated() const override { return false; }

 private:
  SystemRuntime real_;
};

/// An open window of 3 steps.
outer::UncommittedDelta::Part open_window(const Site& site) {
  return {.beyond = std::vector<float>(site.values().size(), 0.25F),
          .tokens = 3 * kTokensOfAStep,
          .steps = 3};
}

void await_end(const OfflineTraining& training) {
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

TEST(OfflineTraining, TakesSoManyWindowsOfTheSitesNextStepsAndEnds) {
  for (const std::int64_t windows : {1, 3}) {
    const std::vector<std::string> key = {"net.max_solo_rounds=" + std::to_string(windows)};
    Site site(key);
    const std::unique_ptr<OfflineTraining> alone = site.alone();
    EXPECT_FALSE(alone->trains());
    alone->begin();
    await_end(*alone);
    const auto work = alone->end();
    const std::int64_t steps = 4 * windows;
    EXPECT_EQ(work.alone_steps, steps);
    EXPECT_EQ(work.alone_tokens, steps * kTokensOfAStep);
    EXPECT_EQ(work.parts[0].tokens, steps * kTokensOfAStep);
    EXPECT_EQ(work.trained, StepIndex(7 + steps));
    EXPECT_EQ(work.step, kCutOffAfter);
    EXPECT_EQ(work.parts[0].beyond, Site(key).gain(steps_from(8, steps)));
  }
}

// It would go on for hours.
TEST(OfflineTraining, EndsBetweenTwoStepsWhenTheOthersAreFound) {
  const std::vector<std::string> key = {"net.max_solo_rounds=1000000", "train.steps=100000000"};
  Site site(key);
  SystemRuntime runtime;
  const std::unique_ptr<WaitQueue> queue = runtime.make_wait_queue();
  bool second = false;
  *site.hook = [&](StepIndex t) {
    if (t == StepIndex(9)) queue->update([&] { second = true; });
  };
  const std::unique_ptr<OfflineTraining> alone = site.alone();
  alone->begin();
  ASSERT_TRUE(queue->wait([&] { return second; }, runtime.clock().now() + std::chrono::minutes(2)));
  EXPECT_TRUE(alone->trains());
  const auto work = alone->end();
  EXPECT_FALSE(alone->trains());
  EXPECT_GE(work.alone_steps, 2) << "that of step 9 was under way";
  EXPECT_EQ(work.trained, StepIndex(7 + work.alone_steps));
  EXPECT_EQ(work.parts[0].beyond, Site(key).gain(steps_from(8, work.alone_steps)));
}

TEST(OfflineTraining, TakesNoStepBehindTheRunsLast) {
  Site site({"net.max_solo_rounds=200", "train.steps=10"});
  const std::unique_ptr<OfflineTraining> alone = site.alone();
  alone->begin();
  await_end(*alone);
  const auto work = alone->end();
  EXPECT_EQ(work.alone_steps, 3);
  EXPECT_EQ(work.trained, StepIndex(10));
}

// A window is of the run's clock, and a slow site takes fewer of its steps.
TEST(OfflineTraining, GoesAtTheSitesPace) {
  Site site({}, "pace = 0.5\n");
  const std::unique_ptr<OfflineTraining> alone = site.alone();
  alone->begin();
  await_end(*alone);
  const auto work = alone->end();
  std::vector<std::int64_t> taken;
  for (const std::int64_t t : steps_from(8, 4)) {
    if (takes_step(0.5, StepIndex(t))) taken.push_back(t);
  }
  EXPECT_EQ(work.alone_steps, 2);
  EXPECT_EQ(work.trained, StepIndex(11));
  EXPECT_EQ(work.parts[0].beyond, Site({}, "pace = 0.5\n").gain(taken));
}

TEST(OfflineTraining, WithoutDataHasTheWorkOfBefore) {
  Site site({"data.source=\"text:/nowhere/at/all\""});
  const std::unique_ptr<OfflineTraining> alone = site.alone();
  alone->begin();
  await_end(*alone);
  const auto work = alone->end();
  EXPECT_EQ(work.alone_steps, 0);
  EXPECT_EQ(work.step, kCutOffAfter);
}

// Without its data, for want of memory, or for another reason.
TEST(OfflineTraining, AStepThatFailsLosesNothingOfThoseBefore) {
  const std::vector<Site::Before> failures = {
      [](StepIndex) { throw ConfigError("a token too large"); },
      [](StepIndex) { throw SystemError("the disk is gone"); },
      [](StepIndex) { throw std::bad_alloc(); }, [](StepIndex) { throw std::logic_error("bug"); }};
  for (const Site::Before& fail : failures) {
    for (const std::int64_t taken : {0, 2}) {
      Site site;
      *site.hook = [&](StepIndex t) {
        if (t == StepIndex(8 + taken)) fail(t);
      };
      const outer::UncommittedDelta::Part open = open_window(site);
      const std::unique_ptr<OfflineTraining> alone = site.alone(open);
      alone->begin();
      await_end(*alone);
      const auto work = alone->end();
      EXPECT_EQ(work.alone_steps, taken);
      EXPECT_EQ(work.lost_tokens(), 0);
      EXPECT_EQ(work.tokens(), (3 + taken) * kTokensOfAStep);
      const std::vector<float> gained = Site().gain(steps_from(8, taken));
      const std::vector<float>& beyond = work.parts[0].beyond;
      ASSERT_EQ(beyond.size(), gained.size());
      for (std::size_t i = 0; i < beyond.size(); ++i) {
        ASSERT_NEAR(beyond[i], open.beyond[i] + gained[i], 1e-6) << i;
      }
    }
  }
}

TEST(OfflineTraining, OfARoundThatFailedHasNothingToGiveWhereItsFirstStepFails) {
  Site site;
  *site.hook = [](StepIndex) { throw std::bad_alloc(); };
  const std::unique_ptr<OfflineTraining> alone = site.alone();
  alone->begin();
  await_end(*alone);
  EXPECT_TRUE(alone->end().parts[0].beyond.empty());
}

TEST(OfflineTraining, WithoutAThreadHasTheWorkOfBefore) {
  Site site;
  const outer::UncommittedDelta::Part open = open_window(site);
  const std::unique_ptr<OfflineTraining> alone = site.alone(open, std::make_unique<NoThreads>());
  const Told told;
  alone->begin();
  EXPECT_FALSE(alone->trains());
  EXPECT_NE(told.text().find("no thread for task"), std::string::npos) << told.text();
  const auto work = alone->end();
  EXPECT_EQ(work.parts[0].beyond, open.beyond);
  EXPECT_EQ(work.tokens(), 3 * kTokensOfAStep);
  EXPECT_EQ(work.alone_steps, 0);
}

// A signal, or a refusal of the others.
TEST(OfflineTraining, TellsWhatIsLostWhereTheSiteEnds) {
  const std::string lost = "tokens; 4 of the steps were taken alone, on 128 tokens";
  for (const bool found : {false, true}) {
    const Told told;
    Site site;
    {
      PendingDelta hand;
      hand.training = site.alone(open_window(site));
      hand.training->begin();
      await_end(*hand.training);
      if (found) hand.end_training();
      EXPECT_EQ(told.text().find("lost"), std::string::npos) << told.text();
    }
    EXPECT_NE(told.text().find("lost, 224 " + lost), std::string::npos) << told.text();
  }
}

TEST(OfflineTraining, TellsOfNoLossWhereTheSiteTakesPartAgain) {
  const Told told;
  {
    Site site;
    PendingDelta hand;
    hand.training = site.alone(open_window(site));
    hand.training->begin();
    await_end(*hand.training);
    hand.end_training();
    hand.work.reset();  // taken up
  }
  EXPECT_EQ(told.text().find("lost"), std::string::npos) << told.text();
}

TEST(OfflineTraining, ThatHasNotBegunGivesTheWorkBack) {
  Site site;
  const auto work = site.alone()->end();
  EXPECT_TRUE(work.parts[0].beyond.empty());
  EXPECT_EQ(work.alone_steps, 0);
}

}  // namespace
}  // namespace isthmus::app::this_file
