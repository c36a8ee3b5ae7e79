// SPDX-License-Identifier: Apache-2.0
// Two sites of a run over TCP that are two sessions in one process, each with a trainer of the
// caller's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/common/free_ports.h"
#include "core/temporary_directory.h"
#include "isthmus/codec.h"
#include "isthmus/session.h"
#include "session/follower.h"

namespace isthmus::this_file {
namespace {

using testing_support::AheadTrainer;
using testing_support::follower_facts;
using testing_support::FollowerTrainer;

constexpr std::array<const char*, 2> kSites = {"east", "west"};

/// A follower of another kind: what its optimizer holds has another name, and state without that
/// name is a donor's of another kind.
class AveragingTrainer final : public Trainer {
 public:
  AveragingTrainer(const WorkerContext& worker, std::atomic<int>& begun_anew)
      : loop_(worker.rank.value(), begun_anew) {}
  [[nodiscard]] InnerLoop& loop() override { return loop_; }

 private:
  class Loop final : public InnerLoop {
   public:
    Loop(int worker, std::atomic<int>& begun_anew) : loop_(worker), begun_anew_(begun_anew) {}
    [[nodiscard]] std::span<const Parameter> parameters() const override {
      return loop_.parameters();
    }
    InnerStep train_step(StepIndex t) override {
      ++steps_;
      return loop_.train_step(t);
    }
    [[nodiscard]] double learning_rate(StepIndex t) const override {
      return loop_.learning_rate(t);
    }
    void save(StateWriter& writer) const override { writer.integer("averaged steps", steps_); }
    void load(StateReader& reader) override {
      if (reader.contains("averaged steps")) {
        steps_ = reader.integer("averaged steps");
      } else {
        steps_ = 0;
        ++begun_anew_;
      }
    }

   private:
    testing_support::Follower loop_;
    std::atomic<int>& begun_anew_;
    std::int64_t steps_ = 0;
  };
  Loop loop_;
};

/// Asks for something once, so many steps after the first that it hears of.
class AfterSteps final : public RunListener {
 public:
  AfterSteps(std::int64_t steps, std::function<void()> ask) : steps_(steps), ask_(std::move(ask)) {}
  void step(StepIndex t) override {
    if (!first_) first_ = t.value();
    if (t.value() >= *first_ + steps_ && !std::exchange(asked_, true)) ask_();
  }

 private:
  const std::int64_t steps_;
  const std::function<void()> ask_;
  std::optional<std::int64_t> first_;
  bool asked_ = false;
};

class SitesOfCallers : public testing::Test {
 protected:
  SitesOfCallers() {
    const std::vector<int> ports = app::free_loopback_ports(2);
    std::string text =
        "[train]\ntrainer = \"external\"\nsteps = 40\n[outer]\nmethod = \"diloco\"\nH = 4\n"
        "[net]\ngather = \"60s\"\n";
    for (std::size_t m = 0; m < 2; ++m) {
      text +=
          fmt::format("[[site]]\nname = \"{}\"\naddress = \"127.0.0.1:{}\"\n", kSites[m], ports[m]);
    }
    config_ = load_config_text(text, "run.toml", {}, {.methods = methods(), .codecs = codecs()});
  }
  /// RETURNS: what went wrong at each site; empty: nothing.
  std::array<std::string, 2> run(const std::array<TrainerFacts, 2>& facts,
                                 const std::array<std::string, 2>& starts = {"first", "first"},
                                 float unlike = 0, std::atomic<int>* ahead = nullptr) {
    std::array<std::string, 2> failures;
    std::array<Wishes, 2> wishes;
    std::vector<std::thread> sites;
    for (std::size_t m = 0; m < 2; ++m) {
      sites.emplace_back([&, m] {
        try {
          Config config = config_;
          config.net.start = starts[m];
          const RunEnd end = run_session(
              config, {.site = kSites[m], .out = directory_ / kSites[m]}, facts[m],
              [&](const WorkerContext& worker) -> std::unique_ptr<Trainer> {
                if (ahead != nullptr) return std::make_unique<AheadTrainer>(worker, *ahead);
                return std::make_unique<FollowerTrainer>(
                    worker, unlike * static_cast<float>(worker.rank.value()));
              },
              wishes[m]);
          if (end.steps != 40) failures[m] = fmt::format("ended after {} steps", end.steps);
        } catch (const Error& error) {
          failures[m] = error.what();
        }
      });
    }
    for (std::thread& each : sites) each.join();
    return failures;
  }
  [[nodiscard]] std::string model_of(const std::string& out) const {
    std::ifstream in(directory_ / out / "ckpt/last/model.safetensors", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TemporaryDirectory directory_;
  Config config_;
};

TEST_F(SitesOfCallers, TrainInOneProcess) {
  EXPECT_THAT(run({follower_facts(), follower_facts()}), testing::Each(""));
  EXPECT_FALSE(model_of("east").empty());
  EXPECT_EQ(model_of("east"), model_of("west"));
}

TEST_F(SitesOfCallers, ThatGoOnAheadTrainTheSame) {
  config_.outer.H = 12;
  EXPECT_THAT(run({follower_facts(), follower_facts()}), testing::Each(""));
  const std::string expected = model_of("east");
  for (const char* const site : kSites) std::filesystem::remove_all(directory_ / site);
  std::atomic<int> ahead{0};
  EXPECT_THAT(run({follower_facts(), follower_facts()}, {"first", "first"}, 0, &ahead),
              testing::Each(""));
  EXPECT_GT(ahead, 0);
  EXPECT_EQ(model_of("east"), expected);
  EXPECT_EQ(model_of("west"), expected);
}

TEST_F(SitesOfCallers, BeginWithTheFirstSitesValues) {
  EXPECT_THAT(run({follower_facts(), follower_facts()}, {"first", "first"}, 3), testing::Each(""));
  const std::string unlike = model_of("west");
  EXPECT_EQ(model_of("east"), unlike);
  std::filesystem::remove_all(directory_ / "east");
  std::filesystem::remove_all(directory_ / "west");
  EXPECT_THAT(run({follower_facts(), follower_facts()}), testing::Each(""));
  EXPECT_EQ(model_of("east"), unlike);
}

TEST_F(SitesOfCallers, WhoseStartsDifferAreTold) {
  EXPECT_THAT(
      run({follower_facts(), follower_facts()}, {"same", "same"}, 3),
      testing::Contains(testing::AllOf(testing::HasSubstr("'second' is the first tensor"),
                                       testing::HasSubstr("east"), testing::HasSubstr("west"))));
}

TEST_F(SitesOfCallers, HaveTheirKindOfStartAlike) {
  EXPECT_THAT(run({follower_facts(), follower_facts()}, {"first", "same"}),
              testing::Each(testing::HasSubstr("net.start")));
}

TEST_F(SitesOfCallers, OfUnlikeKindsTrainOneModel) {
  TrainerFacts other = follower_facts();
  other.kind = "another follower";
  other.common = {{"momentum", "0.5"}};
  EXPECT_THAT(run({follower_facts(), other}), testing::Each(""));
  EXPECT_EQ(model_of("east"), model_of("west"));
}

// West leaves in order and comes back with an empty folder, so that its state is its donor's.
TEST_F(SitesOfCallers, JoinARunWhoseDonorHasAnotherTrainer) {
  config_.train.steps = 10'000'000;  // until a wish to stop
  config_.net.min_sites = 1;
  TrainerFacts averaging = follower_facts();
  averaging.kind = "averaging follower";
  std::array<Wishes, 2> wishes;
  std::atomic<int> begun_anew{0};
  RunEnd east_end;
  std::thread east([&] {
    east_end = run_session(
        config_, {.site = "east", .out = directory_ / "east"}, follower_facts(),
        [](const WorkerContext& worker) { return std::make_unique<FollowerTrainer>(worker); },
        wishes[0]);
  });
  const auto west = [&](const char* out, RunListener& listener) {
    return run_session(
        config_, {.site = "west", .out = directory_ / out}, averaging,
        [&](const WorkerContext& worker) {
          return std::make_unique<AveragingTrainer>(worker, begun_anew);
        },
        wishes[1], &listener);
  };
  AfterSteps leaves(12, [&] { wishes[1].leave(); });
  EXPECT_EQ(west("west", leaves).exit_code, ExitCode::kCheckpointedRequeue);
  EXPECT_EQ(begun_anew, 0) << "a run that begins has no donor";
  wishes[1].forget();
  AfterSteps ends(12, [&] { wishes[1].interrupt(); });
  const RunEnd west_end = west("again", ends);
  east.join();
  EXPECT_EQ(west_end.exit_code, ExitCode::kInterrupted);
  EXPECT_EQ(east_end.exit_code, ExitCode::kInterrupted);
  EXPECT_EQ(west_end.steps, east_end.steps);
  EXPECT_EQ(begun_anew, 1) << "what its optimizer holds is not in its donor's state";
  EXPECT_FALSE(model_of("east").empty());
  EXPECT_EQ(model_of("east"), model_of("again"));
}

TEST_F(SitesOfCallers, OfOneKindHaveTheirValuesAlike) {
  TrainerFacts other = follower_facts();
  other.common = {{"momentum", "0.5"}};
  EXPECT_THAT(run({follower_facts(), other}),
              testing::Each(testing::HasSubstr("trainer.momentum is")));
}

}  // namespace
}  // namespace isthmus::this_file
