// SPDX-License-Identifier: Apache-2.0
// train.attention: three words, what it does not go together with, what of a run it is part of.
#include <gtest/gtest.h>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

constexpr const char* kBf16 = "train.precision=bf16";
constexpr const char* kCudnn = "train.attention=cudnn";

TEST(ConfigAttention, IsOneOfThreeWords) {
  EXPECT_EQ(load_minimal().train.attention, "auto");
  const Config config = load_minimal({kBf16, kCudnn});
  EXPECT_EQ(config.train.attention, "cudnn");
  const std::string resolved = resolved_toml(config);
  EXPECT_NE(resolved.find("attention = \"cudnn\""), std::string::npos) << resolved;
  EXPECT_EQ(load(resolved).train.attention, "cudnn");
  const auto found = diagnostics_of(kMinimal, {"train.attention=flash"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "E-VALUE");
}

// Of the outcome it is, by its rounding; by default results from before the key keep their digests.
TEST(ConfigAttention, IsNoPartOfTheTrajectory) {
  const Config own = load_minimal({kBf16}), other = load_minimal({kBf16, kCudnn});
  EXPECT_EQ(config_digest(other), config_digest(own));
  EXPECT_NE(outcome_digest(other), outcome_digest(own));
  Config before = own;
  before.origins.erase("train.attention");
  EXPECT_EQ(outcome_digest(before), outcome_digest(own));
  EXPECT_EQ(common_values(other), common_values(own));
}

TEST(ConfigAttention, RefusalsNameBothKeysAndTheRemedy) {
  struct Case {
    std::vector<std::string> settings;
    const char* with;
    const char* remedy;
  };
  for (const Case& wanted :
       {Case{{kCudnn}, "train.precision", "precision = \"bf16\""},
        Case{{kCudnn, kBf16, "train.device=cpu"}, "train.device", "device = \"cuda\""},
        Case{{kCudnn, kBf16, "outer.method=spsa", "outer.samples=2"},
             "outer.samples",
             "parallel.micro_batches a multiple"}}) {
    const auto found = diagnostics_of(kMinimal, wanted.settings);
    ASSERT_EQ(found.size(), 1U) << wanted.with;
    EXPECT_EQ(found[0].code, "E-CONFLICT");
    EXPECT_NE(found[0].message.find("train.attention"), std::string::npos) << found[0].message;
    EXPECT_NE(found[0].message.find(wanted.with), std::string::npos) << found[0].message;
    EXPECT_NE(found[0].hint.find(wanted.remedy), std::string::npos) << found[0].hint;
  }
  for (const char* const device : {"auto", "cuda", "cuda:1"}) {
    EXPECT_TRUE(
        diagnostics_of(kMinimal, {kCudnn, kBf16, std::string("train.device=") + device}).empty());
  }
}

}  // namespace
}  // namespace isthmus::this_file
