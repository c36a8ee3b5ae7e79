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
