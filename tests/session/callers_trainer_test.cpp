// SPDX-License-Identifier: Apache-2.0
// Runs of a trainer of the caller's, through isthmus/session.h alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/temporary_directory.h"
#include "isthmus/codec.h"
#include "isthmus/outer.h"
#include "isthmus/session.h"
#include "session/follower.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::AheadTrainer;
using testing_support::FollowerTrainer;

std::unique_ptr<Trainer> make(const WorkerContext& worker) {
  return std::make_unique<FollowerTrainer>(worker);
}

/// Another start at each worker, of which worker 0's is the one above.
std::unique_ptr<Trainer> make_unlike(const WorkerContext& worker) {
  return std::make_unique<FollowerTrainer>(worker, static_cast<float>(worker.rank.value()));
}

Config config_of(const std::string& more) {
  return load_config_text(
      "[run]\nworkers = 2\n[train]\ntrainer = \"external\"\nsteps = 60\n[outer]\nmethod = "
      "\"diloco\"\nH = 4\n" +
          more,
      "run.toml", {}, {.methods = methods(), .codecs = codecs()});
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class CallersTrainer : public testing::Test {
 protected:
  RunEnd run(const std::string& out, const std::string& resume = "never",
             const Config& config = config_of("")) {
    return run_session(config, {.out = directory_ / out, .resume = resume}, facts_, make_, wishes_,
                       listener_);
  }
  [[nodiscard]] std::string model_of(const std::string& out) const {
    return text_of(directory_ / out / "ckpt/last/model.safetensors");
  }
  [[nodiscard]] std::string refusal(const std::string& resume = "never",
                                    const Config& config = config_of("")) {
    try {
      run("refused", resume, config);
      return {};
    } catch (const ConfigError& error) {
      return error.what();
    }
  }

  TemporaryDirectory directory_;
  TrainerFacts facts_ = testing_support::follower_facts();
  Wishes wishes_;
  RunListener* listener_ = nullptr;
  TrainerFactory make_ = make;
};

/// Asks for something once step `at` has been taken.
class Asks final : public RunListener {
 public:
  Asks(std::int64_t at, std::function<void()> ask) : at_(at), ask_(std::move(ask)) {}
  void step(StepIndex t) override {
    if (t.value() == at_) ask_();
  }

 private:
  const std::int64_t at_;
  const std::function<void()> ask_;
};

// A site that left once would not come back to its next run where it is cut off.
TEST(Wishes, ForgottenLeaveNothingToTheNextRun) {
  Wishes wishes;
  wishes.interrupt();
  wishes.checkpoint();
  wishes.leave();
  EXPECT_TRUE(wishes.take_leave());  // as the run that it is for reads it
  wishes.forget();
  EXPECT_EQ(wishes.stop(), StopWish::kNone);
  EXPECT_FALSE(wishes.take_checkpoint());
  EXPECT_FALSE(wishes.take_leave());
  EXPECT_FALSE(wishes.leaving());
}

TEST_F(CallersTrainer, IsStoppedAndResumedWithTheBitsOfAWholeRun) {
  EXPECT_EQ(run("whole").exit_code, ExitCode::kOk);
  Asks asks(13, [this] { wishes_.interrupt(); });
  listener_ = &asks;
  const RunEnd stopped = run("parts");
  EXPECT_EQ(stopped.exit_code, ExitCode::kInterrupted);
  EXPECT_GE(stopped.steps, 13);
  EXPECT_LT(stopped.steps, 60);
  listener_ = nullptr;
  wishes_.forget();
  const RunEnd end = run("parts", "auto");
  EXPECT_EQ(end.exit_code, ExitCode::kOk);
  EXPECT_EQ(end.steps, 60);
  EXPECT_FALSE(model_of("whole").empty());
  EXPECT_EQ(model_of("parts"), model_of("whole"));
}

Config quiet_config(const std::string& outer) {
  return load_config_text(
      "[run]\nworkers = 2\n[train]\ntrainer = \"external\"\nsteps = 90\n[ckpt]\nevery = \"25 "
      "steps\"\n[outer]\n" +
          outer,
      "run.toml", {}, {.methods = methods(), .codecs = codecs()});
}

TEST_F(CallersTrainer, ThatGoesOnAheadTrainsTheSame) {
  for (const char* const outer :
       {"method = \"localsgd\"\nH = 16\n", "method = \"diloco\"\nH = 16\n",
        "method = \"streaming-diloco\"\nH = 20\nfragments = 2\noverlap = 3\nalpha = 0.5\n",
        "method = \"delayed\"\nH = 16\n", "method = \"eager\"\nH = 16\n",
        "method = \"co2\"\nH = 16\n", "method = \"sparseloco\"\nH = 16\ncodec = \"topk:64\"\n"}) {
    const Config config = quiet_config(outer);
    make_ = make;
    run("with a word at every step", "never", config);
    std::atomic<int> ahead{0};
    make_ = [&](const WorkerContext& worker) {
      return std::make_unique<AheadTrainer>(worker, ahead);
    };
    run("ahead", "never", config);
    EXPECT_GT(ahead, 2 * 30) << outer;
    EXPECT_EQ(model_of("ahead"), model_of("with a word at every step")) << outer;
    for (const char* const out : {"ahead", "with a word at every step"})
      std::filesystem::remove_all(directory_ / out);
  }
}

// Where late rounds slip, which step they come in depends on the clock, and bits with it; the
// trainer refuses to be read or written while it is ahead.
TEST_F(CallersTrainer, ThatGoesOnAheadTakesRoundsThatSlip) {
  const Config config = quiet_config(
      "method = \"streaming-diloco\"\nH = 20\nfragments = 2\noverlap = 3\nlate = \"slip\"\n");
  std::atomic<int> ahead{0};
  make_ = [&](const WorkerContext& worker) {
    return std::make_unique<AheadTrainer>(worker, ahead);
  };
  EXPECT_EQ(run("ahead", "never", config).steps, 90);
  EXPECT_GT(ahead, 0);
}

TEST_F(CallersTrainer, ThatGoesOnAheadIsStoppedAndResumed) {
  const Config config = quiet_config("method = \"diloco\"\nH = 16\n");
  run("whole", "never", config);
  std::atomic<int> ahead{0};
  make_ = [&](const WorkerContext& worker) {
    return std::make_unique<AheadTrainer>(worker, ahead);
  };
  Asks asks(29, [this] { wishes_.interrupt(); });
  listener_ = &asks;
  const RunEnd stopped = run("parts", "never", config);
  EXPECT_EQ(stopped.exit_code, ExitCode::kInterrupted);
  EXPECT_LT(stopped.steps, 90);
  listener_ = nullptr;
  wishes_.forget();
  EXPECT_EQ(run("parts", "auto", config).steps, 90);
  EXPECT_GT(ahead, 0);
  EXPECT_EQ(model_of("parts"), model_of("whole"));
}

// Each step of these methods sends, and in virtual time a step takes its time.
TEST_F(CallersTrainer, DoesNotGoOnAheadWhereEachStepIsLookedAt) {
  std::atomic<int> ahead{0};
  make_ = [&](const WorkerContext& worker) {
    return std::make_unique<AheadTrainer>(worker, ahead);
  };
  run("every step", "never", quiet_config("method = \"diloco\"\nH = 1\n"));
  EXPECT_EQ(ahead, 0);
  const Config simulated = config_of("[sim]\nstep_time = \"10ms\"\n");
  (void)run_session(simulated, {.simulated = true, .out = directory_ / "virtual"}, facts_, make_,
                    wishes_);
  EXPECT_EQ(ahead, 0);
}

TEST_F(CallersTrainer, IsSimulatedWithTheBitsOfARealRun) {
  run("real");
  const Config links = config_of(
      "[sim]\nstep_time = \"10ms\"\n[[link]]\nbetween = [\"*\", \"*\"]\nrate = \"1Mbit/s\"\n"
      "rtt = \"80ms\"\n");
  const RunEnd end =
      run_session(links, {.simulated = true, .out = directory_ / "virtual"}, facts_, make, wishes_);
  EXPECT_GT(end.clock_s, 60 * 0.01);
  EXPECT_EQ(model_of("virtual"), model_of("real"));
}

TEST_F(CallersTrainer, WritesACheckpointThatSomebodyAsksFor) {
  Asks asks(13, [this] { wishes_.checkpoint(); });
  listener_ = &asks;
  EXPECT_EQ(run("run").steps, 60);
  int checkpoints = 0;
  for (const auto& each : std::filesystem::directory_iterator(directory_ / "run/ckpt")) {
    checkpoints += each.is_directory() && !each.is_symlink() ? 1 : 0;
  }
  EXPECT_EQ(checkpoints, 3) << "that of the start, that one and the last step's";
}

constexpr const char* kSimulated =
    "[sim]\nstep_time = \"10ms\"\n[[link]]\nbetween = [\"*\", \"*\"]\nrate = \"1Mbit/s\"\n"
    "rtt = \"80ms\"\n";

TEST_F(CallersTrainer, BeginsWithTheFirstWorkersValues) {
  run("alike");
  make_ = make_unlike;
  run("unlike");
  EXPECT_EQ(model_of("unlike"), model_of("alike"));
  EXPECT_EQ(text_of(directory_ / "unlike/ckpt/step-0000000/model.safetensors"),
            text_of(directory_ / "alike/ckpt/step-0000000/model.safetensors"));
  (void)run_session(config_of(kSimulated), {.simulated = true, .out = directory_ / "virtual"},
                    facts_, make_, wishes_);
  EXPECT_EQ(model_of("virtual"), model_of("alike"));
  EXPECT_EQ(refusal("never", config_of("[net]\nstart = \"first\"\n")), "");
}

TEST_F(CallersTrainer, UnlikeStartsThatHaveToBeTheSameAreToldByTensor) {
  make_ = make_unlike;
  EXPECT_THAT(refusal("never", config_of("[net]\nstart = \"same\"\n")),
              testing::AllOf(HasSubstr("workers 0 and 1 start from unlike values, and 'second' is"),
                             HasSubstr("net.start = \"first\"")));
}

// Nobody can be asked to make the start again: it is a checkpoint.
TEST_F(CallersTrainer, GoesOnFromItsStart) {
  run("whole");
  Asks asks(13, [this] { wishes_.interrupt(); });
  listener_ = &asks;
  run("parts");
  for (const auto& each : std::filesystem::directory_iterator(directory_ / "parts/ckpt")) {
    const std::string name = each.path().filename();
    if (each.is_directory() && !each.is_symlink() && name != "step-0000000")
      std::filesystem::remove_all(each.path());
  }
  listener_ = nullptr;
  wishes_.forget();
  make_ = [](const WorkerContext& worker) { return std::make_unique<FollowerTrainer>(worker, 5); };
  EXPECT_EQ(run("parts", "auto").steps, 60);
  EXPECT_EQ(model_of("parts"), model_of("whole"));
}

// The log is all that two sessions share: each obeys its own wishes.
TEST_F(CallersTrainer, TwoSessionsRunInOneProcess) {
  run("alone");
  Wishes others;
  std::atomic<bool> other_has_begun{false};
  Asks asks(9, [&] {
    other_has_begun = true;
    others.interrupt();
  });
  RunEnd stopped;
  std::thread beside([&] {
    stopped =
        run_session(config_of(""), {.out = directory_ / "beside"}, facts_, make, others, &asks);
  });
  const RunEnd end = run("here");
  beside.join();
  EXPECT_TRUE(other_has_begun);
  EXPECT_EQ(stopped.exit_code, ExitCode::kInterrupted);
  EXPECT_EQ(end.exit_code, ExitCode::kOk);
  EXPECT_EQ(end.steps, 60);
  EXPECT_EQ(model_of("here"), model_of("alone"));
}

TEST_F(CallersTrainer, AnotherTrainerDoesNotResumeIt) {
  run("refused");
  facts_.common = {{"momentum", "0.9"}};
  EXPECT_THAT(refusal("auto"), HasSubstr("trainer.momentum was absent and is 0.9"));
  facts_ = testing_support::follower_facts();
  facts_.kind = "another";
  EXPECT_THAT(refusal("auto"), HasSubstr("trainer was follower and is another"));
}

TEST_F(CallersTrainer, ThatIsNotWhatItSaysIsRefused) {
  facts_.parameters[1].name = "third";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("worker "), HasSubstr("not those of its facts"),
                               HasSubstr("parameter 1 is '"), HasSubstr("here and 'third' of")));
  facts_.parameters[1].elements.end = 5;
  EXPECT_THAT(refusal(), HasSubstr("parameter 'third'"));
  facts_.parameters[1].name = "first";
  EXPECT_THAT(refusal(), HasSubstr("a name of its own"));
  facts_ = testing_support::follower_facts();
  facts_.parameters[0].layer = 2147483647;
  EXPECT_THAT(refusal(), HasSubstr("layer = 2147483647: must be 0 or more and below 1000000"));
  facts_.parameters[0].layer = 0;
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{-2, -1},
                                                 {2, 0},
                                                 {std::int64_t{1} << 32, std::int64_t{1} << 32}}) {
    facts_.parameters[0].shape = shape;
    EXPECT_THAT(refusal(),
                HasSubstr("every extent must be at least 1, and a model has fewer than"));
  }
  facts_.kind = "own";
  EXPECT_THAT(refusal(), HasSubstr("the built-in one"));
  facts_.parameters.clear();
  EXPECT_THAT(refusal(), HasSubstr("no parameters"));
}

TEST_F(CallersTrainer, WhoseFactsNoCheckpointCanKeepIsRefused) {
  const TrainerFacts sound = facts_;
  const auto refused = [&](const std::function<void(TrainerFacts&)>& change) {
    facts_ = sound;
    change(facts_);
    return refusal();
  };
  for (const auto& [name, why] :
       {std::pair{"__metadata__", "the file's own notes"}, {"weight\xff", "it is not UTF-8"}}) {
    EXPECT_THAT(refused([name = name](TrainerFacts& facts) { facts.parameters[0].name = name; }),
                AllOf(HasSubstr("a file of weights can have no such name"), HasSubstr(why)));
  }
  using Files = std::vector<std::pair<std::string, std::string>>;
  for (const auto& [files, why] :
       {std::pair{Files{{"../evil", ""}}, "is no name of a file in a folder"},
        {Files{{"a/b", ""}}, "is no name of a file in a folder"},
        {Files{{"/tmp/a", ""}}, "is no name of a file in a folder"},
        {Files{{"", ""}}, "is no name of a file in a folder"},
        {Files{{"model.safetensors", ""}}, "is a file that each checkpoint has itself"},
        {Files{{"worker-0.safetensors", ""}}, "is a file that each checkpoint has itself"},
        {Files{{"state.json", ""}}, "is a file that each checkpoint has itself"},
        {Files{{"a", ""}, {"a", "b"}}, "is there twice"}}) {
    EXPECT_THAT(refused([&files = files](TrainerFacts& facts) { facts.files = files; }),
                AllOf(HasSubstr("TrainerFacts::files: "), HasSubstr(why)));
  }
  for (const char* model : {"nope", "[1]", ""}) {
    EXPECT_THAT(refused([&](TrainerFacts& facts) { facts.model = model; }),
                HasSubstr("must be a JSON object"))
        << model;
  }
  EXPECT_THAT(refused([](TrainerFacts& facts) { facts.step_flops = -1; }),
              HasSubstr("TrainerFacts::step_flops = -1"));
  EXPECT_THAT(refused([](TrainerFacts& facts) { facts.step_flops = std::nan(""); }),
              HasSubstr("TrainerFacts::step_flops = nan"));
  for (const std::int64_t parts : {std::int64_t{-3}, std::int64_t{1} << 40}) {
    EXPECT_THAT(refused([&](TrainerFacts& facts) { facts.evaluation_parts = parts; }),
                HasSubstr("must be a whole number from 0 to 1000000"));
  }
  EXPECT_THAT(refused([](TrainerFacts& facts) { facts.evaluation_parts = 3; }),
              HasSubstr("Trainer::evaluation_parts() = 0, and TrainerFacts::evaluation_parts = 3"));
  EXPECT_THAT(refused([](TrainerFacts& facts) {
                facts.common = {{"lr", "1"}, {"lr", "2"}};
              }),
              HasSubstr("\"lr\" is there twice"));
  EXPECT_THAT(refused([](TrainerFacts& facts) { facts.kind = ""; }), HasSubstr("must be a name"));
  EXPECT_THAT(refused([](TrainerFacts& facts) { facts.kind = "a\nb"; }), HasSubstr("a\\nb"));
  facts_ = sound;
  facts_.files = {{"tokenizer.json", "{}"}, {"model-00001.safetensors", ""}};
  facts_.model = "{\"layers\": 2}";
  EXPECT_EQ(run("sound").exit_code, ExitCode::kOk);
}

/// A follower whose answers are changed on their way.
class Answering final : public Trainer {
 public:
  using Change = std::function<void(InnerStep&, std::vector<EvalPart>&)>;
  Answering(const WorkerContext& worker, Change change)
      : loop_(worker.rank.value(), change), change_(std::move(change)) {}
  [[nodiscard]] InnerLoop& loop() override { return loop_; }
  [[nodiscard]] std::optional<std::int64_t> evaluation_parts() const override { return 4; }
  [[nodiscard]] std::vector<EvalPart> evaluate(InnerLoop&, const ParameterSource&,
                                               std::span<const std::int64_t> asked) override {
    std::vector<EvalPart> parts;
    for (const std::int64_t part : asked) {
      parts.push_back({.batch = part, .loss_sum = 1, .tokens = 1});
    }
    InnerStep unused;
    change_(unused, parts);
    return parts;
  }

 private:
  class Loop final : public testing_support::Follower {
   public:
    Loop(int worker, Change change) : Follower(worker), change_(std::move(change)) {}
    InnerStep train_step(StepIndex t) override {
      InnerStep step = Follower::train_step(t);
      std::vector<EvalPart> unused;
      change_(step, unused);
      return step;
    }

   private:
    const Change change_;
  };
  Loop loop_;
  const Change change_;
};

TEST_F(CallersTrainer, WhoseAnswersCannotBeAddedIsRefused) {
  const auto refused = [&](const Answering::Change& change) {
    make_ = [&change](const WorkerContext& worker) {
      return std::make_unique<Answering>(worker, change);
    };
    return refusal("never", config_of("[eval]\nevery = \"4 steps\"\n"));
  };
  using Parts = std::vector<EvalPart>;
  EXPECT_EQ(refused([](InnerStep&, Parts&) {}), "");
  std::filesystem::remove_all(directory_ / "refused");
  const auto said = [&](const Answering::Change& change, const char* text) {
    EXPECT_THAT(refused(change), HasSubstr(text));
    std::filesystem::remove_all(directory_ / "refused");
  };
  said([](InnerStep& step, Parts&) { step.tokens = -5; },
       "step 1: InnerStep::tokens = -5: must be 0 or more");
  said([](InnerStep& step, Parts&) { step.grad_norm = -1; }, "InnerStep::grad_norm = -1");
  said(
      [](InnerStep&, Parts& parts) {
        if (!parts.empty()) parts.pop_back();
      },
      "give one entry for each of them");
  said(
      [](InnerStep&, Parts& parts) {
        if (!parts.empty()) parts.push_back(parts[0]);
      },
      "give one entry for each of them");
  said(
      [](InnerStep&, Parts& parts) {
        if (!parts.empty()) parts[0].batch = 99;
      },
      "Trainer::evaluate: asked for the parts [");
  said(
      [](InnerStep&, Parts& parts) {
        if (!parts.empty()) parts[0].tokens = -1;
      },
      "tokens = -1: must be 0 or more");
}

// Parameters and outer state are counted: 4 bytes of each, of 3 values at each of two workers and 1
// of the model.
TEST_F(CallersTrainer, WhoseCheckpointsNoDiskCanHoldIsRefusedBeforeItBegins) {
  facts_.parameters = {{.name = "w",
                        .layer = 0,
                        .shape = {std::int64_t{1} << 52},
                        .elements = {0, std::int64_t{1} << 52},
                        .values = {}}};
  make_ = [](const WorkerContext&) -> std::unique_ptr<Trainer> {
    throw RunError("a trainer was made");
  };
  const auto refusal_with = [&](const std::string& ckpt) -> std::string {
    try {
      run("run", "never", config_of("[ckpt]\n" + ckpt));
      return {};
    } catch (const SystemError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal_with("every = \"30 steps\"\nkeep = 3\n"),
              AllOf(HasSubstr((directory_ / "run").string()), HasSubstr("3 checkpoints of"),
                    HasSubstr("without what the trainer keeps beside its parameters"),
                    HasSubstr("lower ckpt.keep, or give `out` on another disk")));
  // One of step 0 and one at the end.
  const std::string both = std::to_string((std::uint64_t{2} * 4 * (1 + 2 * 3)) << 52);
  EXPECT_THAT(refusal_with("keep = 1\n"), HasSubstr("(" + both + " bytes, without"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "run"));
}

TEST_F(CallersTrainer, GoesOnWithAChange) {
  const std::filesystem::path file = directory_ / "run.toml";
  std::ofstream(file)
      << "[run]\nworkers = 2\n[train]\ntrainer = \"external\"\nsteps = 60\n[outer]\n"
         "method = \"diloco\"\nH = 4\n";
  run("changed", "never", load_run(file));
  const auto go_on = [&](const std::vector<std::string>& changes, const std::string& resume) {
    ChangedRun changed = load_changed_run(file, {}, changes);
    return run_session(
        changed.config,
        {.out = directory_ / "changed", .resume = resume, .changes = std::move(changed.changes)},
        facts_, make_, wishes_);
  };
  const auto refusal_of = [&](const std::vector<std::string>& changes,
                              const std::string& resume) -> std::string {
    try {
      (void)go_on(changes, resume);
      return {};
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal_of({"train.steps=50"}, "auto"),
              HasSubstr("change train.steps = 50: the run has taken 60 steps with 60"));
  EXPECT_THAT(refusal_of({"train.steps=80"}, "never"), HasSubstr("without resume"));
  EXPECT_EQ(go_on({"train.steps=80"}, "auto").steps, 80);
  EXPECT_THAT(text_of(directory_ / "changed/manifest.json"),
              HasSubstr("train.steps = 80 (60 before)"));
}

TEST_F(CallersTrainer, RefusesPlacesThatItCannotRunIn) {
  EXPECT_THAT(refusal("never", config_of("[net]\ntransport = \"mpi\"\n")), HasSubstr("over TCP"));
  const auto refusal_of = [&](const RunArguments& arguments) -> std::string {
    try {
      (void)run_session(config_of(""), arguments, facts_, make, wishes_);
      return {};
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal_of({.simulated = true}), HasSubstr("sim.step_time is missing"));
  EXPECT_THAT(refusal_of({.site = "w0", .simulated = true}), HasSubstr("all sites in one process"));
  EXPECT_THAT(refusal_of({.site = "w0", .resume = "runs/x"}), HasSubstr("give \"auto\""));
  EXPECT_THAT(refusal_of({.site = "w0"}), HasSubstr("no [[site]]"));
}

/// Tells of step 7 as `told`.
class TellsOddly final : public Trainer {
 public:
  TellsOddly(const WorkerContext& worker, const InnerStep& told)
      : loop_(worker.rank.value(), told) {}
  [[nodiscard]] InnerLoop& loop() override { return loop_; }

 private:
  class Loop final : public testing_support::Follower {
   public:
    Loop(int worker, const InnerStep& told) : Follower(worker), told_(told) {}
    InnerStep train_step(StepIndex t) override {
      const InnerStep step = Follower::train_step(t);
      return t.value() == 7 ? told_ : step;
    }

   private:
    const InnerStep told_;
  };
  Loop loop_;
};

TEST_F(CallersTrainer, ThatTellsNoNumberHasDiverged) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  InnerStep told;
  make_ = [&](const WorkerContext& worker) { return std::make_unique<TellsOddly>(worker, told); };
  const auto cause = [&](const InnerStep& step) -> std::string {
    told = step;
    std::filesystem::remove_all(directory_ / "odd");
    try {
      run("odd");
      return {};
    } catch (const RunError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(cause({.loss = kNan, .tokens = 4}),
              HasSubstr("step 7: the loss is nan: the run has diverged"));
  EXPECT_THAT(text_of(directory_ / "odd/metrics.jsonl"), HasSubstr("the run has diverged"));
  EXPECT_THAT(cause({.loss = 1, .grad_norm = HUGE_VAL, .tokens = 4}),
              HasSubstr("step 7: the gradient norm is inf"));
  EXPECT_EQ(cause({.loss = kNan, .grad_norm = HUGE_VAL, .tokens = 0, .idle = true}), "");
}

TEST_F(CallersTrainer, ThatFailsEndsTheRunWithItsError) {
  const auto fails = [](const WorkerContext&) -> std::unique_ptr<Trainer> {
    throw RunError("no such weights");
  };
  EXPECT_THROW(
      (void)run_session(config_of(""), {.out = directory_ / "failed"}, facts_, fails, wishes_),
      RunError);
  EXPECT_THAT(text_of(directory_ / "failed/manifest.json"), HasSubstr("failed"));
}

}  // namespace
}  // namespace isthmus::this_file
