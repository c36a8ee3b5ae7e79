// SPDX-License-Identifier: Apache-2.0
// Keys of [outer] and what they are part of.
#include <gtest/gtest.h>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

Config streaming(std::vector<std::string> more) {
  more.insert(more.end(), {"outer.method=streaming-diloco", "outer.H=9", "outer.overlap=2"});
  return load_minimal(more);
}

std::string digest_of(std::vector<std::string> more) {
  return config_digest(streaming(std::move(more)));
}

TEST(ConfigOuter, WhetherResultsMaySlipSteersTheTrajectory) {
  EXPECT_NE(digest_of({}), digest_of({"outer.late=slip"}));
  EXPECT_EQ(digest_of({}), digest_of({"outer.late=wait"})) << "as before there was the key";
}

TEST(ConfigOuter, TheResolvedTextSaysWhetherResultsMaySlip) {
  EXPECT_EQ(streaming({}).outer.late, LateRound::kWait);
  const std::string text = resolved_toml(streaming({"outer.late=slip"}));
  EXPECT_EQ(load(text).outer.late, LateRound::kSlip) << text;
}

// As the authors' code has it; what a file says comes first.
TEST(ConfigOuter, MuLoCoBringsItsInnerOptimizerAndPublishedRates) {
  const Config muloco = load_minimal({"outer.method=muloco"});
  EXPECT_EQ(muloco.inner.optimizer, "muon");
  EXPECT_EQ(muloco.inner.lr, 0.02);
  EXPECT_EQ(muloco.inner.weight_decay, 0.01);
  EXPECT_EQ(muloco.inner.momentum, 0.95);
  EXPECT_FALSE(muloco.inner.nesterov);
  EXPECT_EQ(muloco.inner.adjust_lr, "spectral_norm");
  EXPECT_EQ(muloco.outer.H, 30);
  const Config told = load_minimal({"outer.method=muloco", "inner.optimizer=muon", "inner.lr=0.05",
                                    "inner.nesterov=true", "outer.H=7"});
  EXPECT_EQ(told.inner.lr, 0.05);
  EXPECT_TRUE(told.inner.nesterov);
  EXPECT_EQ(told.outer.H, 7);
  EXPECT_EQ(load_minimal({"outer.method=diloco"}).inner.optimizer, "adamw");
}

TEST(ConfigOuter, MuLoCoWithAnotherInnerOptimizerIsRefused) {
  const auto found = diagnostics_of(kMinimal, {"outer.method=muloco", "inner.optimizer=adamw"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "E-CONFLICT");
  EXPECT_NE(found[0].message.find("muloco"), std::string::npos) << found[0].message;
  EXPECT_NE(found[0].hint.find("diloco"), std::string::npos) << found[0].hint;
}

TEST(ConfigOuter, AMethodOfOneWorkerWithSeveralIsRefused) {
  const auto found = diagnostics_of(kMinimal, {"outer.method=gpa", "run.workers=2"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "E-CONFLICT");
  EXPECT_NE(found[0].message.find("2 workers"), std::string::npos) << found[0].message;
  EXPECT_NE(found[0].hint.find("run.workers = 1"), std::string::npos) << found[0].hint;
  EXPECT_TRUE(diagnostics_of(kMinimal, {"outer.method=gpa", "run.workers=1"}).empty());
}

TEST(ConfigOuter, TheGraceWindowIsATimeOrAutomatic) {
  EXPECT_FALSE(load_minimal({"outer.method=decoupled"}).outer.merge.grace.has_value());
  EXPECT_FALSE(
      load_minimal({"outer.method=decoupled", "outer.grace=auto"}).outer.merge.grace.has_value());
  const Config timed = load_minimal(
      {"outer.method=decoupled", "run.workers=5", "outer.grace=250ms", "outer.quorum=3"});
  EXPECT_EQ(timed.outer.merge.grace, Duration(std::chrono::milliseconds(250)));
  EXPECT_EQ(timed.outer.merge.quorum, 3);
  EXPECT_EQ(load(resolved_toml(timed)).outer.merge.grace, timed.outer.merge.grace);
  EXPECT_NE(config_digest(timed),
            config_digest(load_minimal({"outer.method=decoupled", "run.workers=5",
                                        "outer.grace=251ms", "outer.quorum=3"})));
}

TEST(ConfigOuter, MergesThatCouldNeverBeMadeAreRefused) {
  const auto quorum =
      diagnostics_of(kMinimal, {"outer.method=decoupled", "run.workers=2", "outer.quorum=3"});
  ASSERT_EQ(quorum.size(), 1U);
  EXPECT_EQ(quorum[0].code, "E-RANGE");
  EXPECT_NE(quorum[0].message.find("the 2 workers"), std::string::npos) << quorum[0].message;
  const auto overlap =
      diagnostics_of(kMinimal, {"outer.method=decoupled", "outer.H=4", "outer.overlap=1"});
  ASSERT_EQ(overlap.size(), 1U);
  EXPECT_EQ(overlap[0].code, "E-CONFLICT");
  EXPECT_NE(overlap[0].message.find("outer.grace"), std::string::npos) << overlap[0].message;
}

// A trainer of the user's has an optimizer of its own, whatever it is.
TEST(ConfigOuter, MuLoCoLeavesATrainerOfTheUsersAlone) {
  const std::string external =
      "schema = 1\n[train]\ntrainer = \"external\"\nsteps = 90\n"
      "[outer]\nmethod = \"muloco\"\n";
  EXPECT_EQ(load(external).outer.H, 30);
  EXPECT_EQ(load(external).inner.optimizer, "adamw") << "nothing that anybody reads";
}

TEST(ConfigOuter, RatesThatChangeSteerAndAreCommonAndKeepOldDigests) {
  const auto with = [](std::vector<std::string> more) {
    more.emplace_back("outer.method=diloco");
    return load_minimal(more);
  };
  const Config still = with({});
  EXPECT_EQ(still.outer.run_steps, 0);
  for (const char* const key : {"outer.lr_warmup=10%", "outer.lr_decay=20",
                                "outer.momentum_warmup=5", "outer.momentum_decay=20%"}) {
    const Config moving = with({key});
    EXPECT_NE(config_digest(moving), config_digest(still)) << key;
    EXPECT_NE(outcome_digest(moving), outcome_digest(still)) << key;
    EXPECT_NE(common_values(moving), common_values(still)) << key;
  }
  EXPECT_EQ(outcome_digest(with({"outer.lr_warmup=0"})), outcome_digest(still));
  const Config decaying = with({"outer.lr_decay=20%"});
  EXPECT_EQ(decaying.outer.lr_ramp.decay, 20);
  EXPECT_EQ(decaying.outer.run_steps, 100);
}

TEST(ConfigOuter, RatesThatDoNotFitAreRefused) {
  const auto refused = [](std::vector<std::string> more) {
    more.emplace_back("outer.method=diloco");
    const auto found = diagnostics_of(kMinimal, more);
    return found.size() == 1 ? found[0].code + " " + found[0].message + " " + found[0].hint
                             : std::to_string(found.size());
  };
  EXPECT_NE(refused({"outer.lr_warmup=60", "outer.lr_decay=50"}).find("E-RANGE"),
            std::string::npos);
  EXPECT_NE(refused({"outer.lr_decay=20", "outer.lr_floor=0"}).find("E-RANGE"), std::string::npos);
  EXPECT_NE(refused({"outer.lr_floor=0.5"}).find("outer.lr_decay"), std::string::npos)
      << refused({"outer.lr_floor=0.5"});
  const std::string flat = refused({"outer.momentum=0", "outer.momentum_decay=20"});
  EXPECT_NE(flat.find("E-CONFLICT"), std::string::npos) << flat;
}

// How often digests are compared is nobody's result, but everybody's business.
TEST(ConfigOuter, CommitPeriodsAreCommonAndSteerNothing) {
  const Config usual = load_minimal();
  const Config often = load_minimal({"outer.commit=every:4"});
  EXPECT_EQ(usual.outer.commit_every, 16);
  EXPECT_EQ(often.outer.commit_every, 4);
  EXPECT_EQ(config_digest(often), config_digest(usual));
  EXPECT_NE(outcome_digest(often), outcome_digest(usual)) << "a simulation's clock";
  EXPECT_EQ(outcome_digest(load_minimal({"outer.commit=every:16"})), outcome_digest(usual));
  EXPECT_NE(common_values(often), common_values(usual));
  EXPECT_EQ(load(resolved_toml(often)).outer.commit_every, 4) << resolved_toml(often);
}

// Of a file that does not say it: it is in the digest, in what sites tell each other, and written.
TEST(ConfigOuter, TheClosingRoundIsTheDefaultAndCommon) {
  const Config silent = streaming({});
  EXPECT_EQ(silent.outer.final_sync, FinalSync::kFull);
  const Config drained = streaming({"outer.final_sync=drain"});
  EXPECT_EQ(config_digest(silent), digest_of({"outer.final_sync=full"}));
  EXPECT_NE(config_digest(silent), config_digest(drained));
  EXPECT_NE(outcome_digest(silent), outcome_digest(drained));
  EXPECT_EQ(common_values(silent), common_values(streaming({"outer.final_sync=full"})));
  EXPECT_NE(common_values(silent), common_values(drained));
  EXPECT_EQ(load(resolved_toml(silent)).outer.final_sync, FinalSync::kFull);
  EXPECT_EQ(load(resolved_toml(drained)).outer.final_sync, FinalSync::kDrain);
}

}  // namespace
}  // namespace isthmus::this_file
