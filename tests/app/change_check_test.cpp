// SPDX-License-Identifier: Apache-2.0
// --change: what a run may go on under, what it may not, and the words for why.
#include "app/train/change_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "isthmus/outer.h"

namespace isthmus::app::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kRun = R"(
[run]
workers = 2
[data]
source = "synth:markov1"
[train]
steps = 40
global_batch = "256 tok"
[inner]
lr = 1e-3
warmup = 4
[outer]
)";

Config config_with(const std::string& outer, const std::vector<std::string>& overrides) {
  SchemaContext context;
  context.methods = methods();
  context.codecs = codecs();
  return load_config_text(kRun + outer, "run.toml", overrides, context);
}

constexpr const char* kDiloco = "method = \"diloco\"\nH = 5\n";

/// What a run that has taken `steps` steps hears; empty: it goes on.
std::string refusal(const std::string& outer, std::int64_t steps,
                    const std::vector<std::string>& changes,
                    const std::vector<std::string>& settings = {}) {
  std::vector<std::string> all = settings;
  all.insert(all.end(), changes.begin(), changes.end());
  try {
    check_change(config_with(outer, settings), config_with(outer, all), steps);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ChangeCheck, RatesAndLengthMayChange) {
  for (const char* const change :
       {"train.steps=60", "train.steps=21", "inner.lr=5e-4", "inner.clip=0.5",
        "inner.weight_decay=0", "outer.lr=0.5", "outer.momentum=0.6", "ckpt.keep=7", "eval.every=5",
        "run.workers=1", "net.patience=90s", "train.threads=3"}) {
    EXPECT_EQ(refusal(kDiloco, 20, {change}), "") << change;
  }
  EXPECT_EQ(refusal(kDiloco, 20, {}), "");
}

TEST(ChangeCheck, TheStepsTakenHadTheRatesOfTheNewSchedule) {
  // The rates of a cosine follow from the length.
  EXPECT_THAT(refusal(kDiloco, 20, {"train.steps=60"}, {"inner.schedule=cosine"}),
              AllOf(HasSubstr("train.steps = 60"), HasSubstr("20 steps with 40"),
                    HasSubstr("cosine"), HasSubstr("constant"), HasSubstr("model.init")));
  // Those of wsd only from its decay on: it begins at step 33 of 40.
  const std::vector<std::string> wsd = {"inner.schedule=wsd", "inner.decay=8"};
  EXPECT_EQ(refusal(kDiloco, 20, {"train.steps=60"}, wsd), "");
  EXPECT_EQ(refusal(kDiloco, 30, {"train.steps=60"}, wsd), "");
  EXPECT_THAT(refusal(kDiloco, 35, {"train.steps=60"}, wsd), HasSubstr("rate of step"));
  EXPECT_EQ(refusal(kDiloco, 20, {"inner.schedule=wsd", "inner.decay=10"}), "");
  EXPECT_EQ(refusal(kDiloco, 20, {"inner.lr=2e-3", "train.steps=60"}, wsd), "");
  EXPECT_THAT(refusal(kDiloco, 20, {"inner.warmup=10"}), HasSubstr("rate of step"));
  const std::vector<std::string> decay = {"outer.lr_decay=8"};
  EXPECT_EQ(refusal(kDiloco, 30, {"train.steps=60"}, decay), "");
  EXPECT_THAT(refusal(kDiloco, 35, {"train.steps=60"}, decay),
              AllOf(HasSubstr("outer.lr_decay = 8 of 40 steps has begun"), HasSubstr("step 32")));
  EXPECT_THAT(refusal(kDiloco, 20, {"train.steps=25"}, {"outer.momentum_decay=8"}),
              HasSubstr("outer.momentum_decay = 8 of 25 steps"));
  EXPECT_EQ(refusal(kDiloco, 30, {"outer.lr_decay=10"}, decay), "");
  EXPECT_THAT(refusal(kDiloco, 31, {"outer.lr_decay=10"}, decay),
              HasSubstr("outer.lr_decay = 10 of 40 steps has begun, or would have, by step 31"));
  EXPECT_THAT(refusal(kDiloco, 20, {"train.steps=10"}), HasSubstr("no step left"));
  EXPECT_THAT(refusal(kDiloco, 20, {"train.steps=20"}), HasSubstr("no step left"));
}

TEST(ChangeCheck, HChangesBetweenWindowsOfMethodsWithoutRoundsInFlight) {
  EXPECT_EQ(refusal(kDiloco, 20, {"outer.H=10"}), "");
  EXPECT_THAT(refusal(kDiloco, 15, {"outer.H=10"}),
              AllOf(HasSubstr("outer.H = 10"), HasSubstr("step 15 is inside a window of 10")));
  EXPECT_THAT(refusal(kDiloco, 18, {"outer.H=6"}), HasSubstr("inside a window of 5"));
  EXPECT_THAT(refusal("method = \"eager\"\nH = 5\n", 20, {"outer.H=10"}),
              AllOf(HasSubstr("in flight"), HasSubstr("model.init")));
}

TEST(ChangeCheck, NamesTheKeyBothValuesTheReasonAndTheWayOut) {
  for (const auto& [change, why] : std::vector<std::pair<const char*, const char*>>{
           {"model.d_model=64", "shapes"},
           {"data.order=sequential", "samples"},
           {"train.global_batch=512 tok", "samples"},
           {"run.seed=7", "samples"},
           {"inner.optimizer=sgd", "optimizer's state"},
           {"outer.codec=int8:256", "residuals"}}) {
    const std::string key(change, std::string_view(change).find('='));
    EXPECT_THAT(refusal(kDiloco, 20, {change}),
                AllOf(HasSubstr("--change " + key), HasSubstr(why), HasSubstr("20 steps"),
                      HasSubstr("model.init")))
        << change;
  }
}

// What was in flight has been left out; a window that is open goes on.
TEST(ChangeCheck, ARunThatEndedWithoutAClosingRoundIsNotMadeLonger) {
  const std::string eager = "method = \"eager\"\nH = 5\n";
  const std::vector<std::string> longer = {"train.steps=60"};
  EXPECT_EQ(refusal(eager, 40, longer), "");
  EXPECT_THAT(refusal(eager, 40, longer, {"outer.final_sync=drain"}),
              AllOf(HasSubstr("final_sync = \"drain\""), HasSubstr("in flight"),
                    HasSubstr("--resume PATH")));
  EXPECT_EQ(refusal(eager, 35, longer, {"outer.final_sync=drain"}), "");
  EXPECT_EQ(refusal(kDiloco, 40, longer, {"outer.final_sync=drain"}), "");
}

TEST(ChangeCheck, ARoundInFlightComesOutAsItWentIn) {
  const std::string eager = "method = \"eager\"\nH = 5\n";
  EXPECT_THAT(refusal(eager, 20, {"outer.lr=0.3"}), HasSubstr("round in flight"));
  EXPECT_EQ(refusal(eager, 20, {"inner.lr=5e-4"}), "");
}

TEST(ChangeCheck, AWarmUpInSharesOfTheRunNamesItsSteps) {
  EXPECT_THAT(refusal(kDiloco, 20, {"train.steps=80"}, {"inner.warmup=10%"}),
              AllOf(HasSubstr("rate of step"), HasSubstr("--change inner.warmup=4")));
  EXPECT_EQ(refusal(kDiloco, 20, {"train.steps=80", "inner.warmup=4"}, {"inner.warmup=10%"}), "");
}

TEST(ChangeCheck, OuterRampsInSharesOfTheRunAreJudgedByTheStepsTaken) {
  const std::vector<std::string> ramps = {"outer.lr_warmup=10%", "outer.lr_decay=20%",
                                          "outer.lr_floor=0.2"};
  // At 60 steps the warm-up would have been 6 steps: rounds up to step 5 had other rates.
  EXPECT_THAT(refusal(kDiloco, 20, {"train.steps=60"}, ramps),
              AllOf(HasSubstr("--change train.steps = 60"),
                    HasSubstr("step 1 had 0.25 of outer.lr, and would have had 0.167 under "
                              "outer.lr_warmup = 6 (every step taken is judged, whether a round "
                              "was sent at it or not)"),
                    HasSubstr("add --change outer.lr_warmup=4, which it was in steps")));
  EXPECT_EQ(refusal(kDiloco, 20, {"train.steps=60", "outer.lr_warmup=4"}, ramps), "");
  EXPECT_THAT(refusal(kDiloco, 35, {"train.steps=60", "outer.lr_warmup=4"}, ramps),
              AllOf(HasSubstr("outer.lr_decay = 8 of 40 steps has begun"), HasSubstr("step 32"),
                    testing::Not(HasSubstr("add --change outer.lr_decay"))))
      << "8 of 60 steps would not fit either";
  EXPECT_EQ(refusal(kDiloco, 20, {"outer.lr_floor=0.5"}, ramps), "");
  const std::vector<std::string> momentum = {"outer.momentum_decay=20%"};
  EXPECT_EQ(refusal(kDiloco, 20, {"train.steps=60"}, momentum), "");
  EXPECT_EQ(refusal(kDiloco, 20, {"outer.momentum_floor=0.5"}, momentum), "");
  EXPECT_EQ(refusal(kDiloco, 20, {"train.steps=25"}, momentum), "");
  EXPECT_THAT(refusal(kDiloco, 21, {"train.steps=25"}, momentum),
              HasSubstr("outer.momentum_decay = 5 of 25 steps"));
}

TEST(ChangeCheck, KeysInSharesOfTheRunNameTheirSteps) {
  EXPECT_THAT(refusal("method = \"diloco\"\nH = \"10%\"\n", 20, {"train.steps=60"}),
              AllOf(HasSubstr("outer.H = 6"), HasSubstr("add --change outer.H=4, which it was")));
  EXPECT_THAT(
      refusal("method = \"streaming-diloco\"\nH = 5\noverlap = \"5%\"\n", 20, {"train.steps=60"}),
      AllOf(HasSubstr("outer.overlap = 3"), HasSubstr("add --change outer.overlap=2")));
}

}  // namespace
}  // namespace isthmus::app::this_file
