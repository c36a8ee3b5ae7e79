// SPDX-License-Identifier: Apache-2.0
// train.recompute: a word or the switch it began as, and no part of what a run comes to.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

TEST(ConfigRecompute, IsAWordOrASwitch) {
  for (const auto& [text, recompute, word] :
       {std::tuple{"false", Recompute::kNone, "none"}, std::tuple{"true", Recompute::kFull, "full"},
        std::tuple{"none", Recompute::kNone, "none"},
        std::tuple{"\"selective\"", Recompute::kSelective, "selective"},
        std::tuple{"full", Recompute::kFull, "full"}}) {
    const Config config = load_minimal({std::string("train.recompute=") + text});
    EXPECT_EQ(config.train.recompute, recompute) << text;
    const std::string resolved = resolved_toml(config);
    EXPECT_NE(resolved.find(std::string("recompute = \"") + word + "\""), std::string::npos)
        << text;
    EXPECT_EQ(load(resolved).train.recompute, recompute) << text;
  }
  EXPECT_EQ(load_minimal().train.recompute, Recompute::kNone);
}

TEST(ConfigRecompute, IsNoPartOfTheTrajectoryOrTheOutcome) {
  const Config kept = load_minimal();
  for (const char* text : {"false", "true", "selective"}) {
    const Config config = load_minimal({std::string("train.recompute=") + text});
    EXPECT_EQ(config_digest(config), config_digest(kept)) << text;
    EXPECT_EQ(outcome_digest(config), outcome_digest(kept)) << text;
    EXPECT_EQ(common_values(config), common_values(kept)) << text;
  }
}

TEST(ConfigRecompute, RefusesOtherWordsAndTypes) {
  const auto refused = [](const char* text, const char* code, const std::string& words) {
    const auto found = diagnostics_of(kMinimal, {std::string("train.recompute=") + text});
    ASSERT_EQ(found.size(), 1U) << text;
    EXPECT_EQ(found[0].code, code) << text;
    EXPECT_NE((found[0].message + found[0].hint).find(words), std::string::npos)
        << found[0].message << found[0].hint;
  };
  refused("selektive", "E-VALUE", "none, selective, full");
  refused("selektive", "E-VALUE", "did you mean 'selective'?");
  refused("1", "E-TYPE", "true, false or one of none, selective, full");
}

}  // namespace
}  // namespace isthmus::this_file
