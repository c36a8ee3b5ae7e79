// SPDX-License-Identifier: Apache-2.0
// [[fault]]: read, written out again, part of the outcome; each wrong use told by name and place.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;

std::string with_fault(const std::string& keys) {
  return std::string(kMinimal) + "[run]\nworkers = 2\n[[fault]]\n" + keys;
}

TEST(ConfigFaults, SurviveTheResolvedText) {
  const std::string two = with_fault(R"(kind = "cut"
between = ["w0", "*"]
at = "0s"
lasts = "5min"
[[fault]]
kind = "slow"
site = "w1"
at = "1h"
lasts = "90s"
pace = "25%"
)");
  const Config config = load(resolved_toml(load(two)));
  ASSERT_EQ(config.faults.size(), 2U);
  EXPECT_EQ(config.faults[0].kind, "cut");
  EXPECT_EQ(config.faults[0].a, "w0");
  EXPECT_EQ(config.faults[0].b, "*");
  EXPECT_EQ(config.faults[0].at, 0s);
  EXPECT_EQ(config.faults[0].lasts, 5min);
  EXPECT_EQ(config.faults[1].site, "w1");
  EXPECT_EQ(config.faults[1].at, 1h);
  EXPECT_EQ(config.faults[1].pace, 0.25);
}

TEST(ConfigFaults, ChangeTheOutcomeAndNoParameters) {
  const auto pause = [](const std::string& lasts) {
    return load(
        with_fault("kind = \"pause\"\nsite = \"w0\"\nat = \"1s\"\nlasts = \"" + lasts + "\"\n"));
  };
  EXPECT_NE(outcome_digest(pause("1s")), outcome_digest(pause("2s")));
  EXPECT_EQ(config_digest(pause("1s")), config_digest(load_minimal({"run.workers=2"})));
}

TEST(ConfigFaults, WrongOnesAreToldByNameAndPlace) {
  const std::string when = "at = \"1s\"\nlasts = \"1s\"\n";
  const std::string cut = "kind = \"cut\"\nbetween = [\"*\", \"*\"]\n";
  const std::string slow = "kind = \"slow\"\nsite = \"w1\"\n";
  struct Case {
    std::string keys;  // the first one stands in line 9
    const char* code;
    int line, column;
    const char* words;
  };
  const Case cases[] = {
      {when, "E-KEY-MISSING", 8, 1, "without 'kind'"},
      {"kind = \"cutt\"\n" + when, "E-VALUE", 9, 8, "cut"},
      {"kind = \"cut\"\n" + when, "E-KEY-MISSING", 8, 1, "without 'between'"},
      {cut + "at = \"1s\"\n", "E-KEY-MISSING", 8, 1, "without 'lasts'"},
      {cut + "lasts = \"1s\"\n", "E-KEY-MISSING", 8, 1, "without 'at'"},
      {cut + "at = \"1s\"\nlasts = \"0s\"\n", "E-RANGE", 12, 9, "> 0"},
      {cut + when + "rate = \"1Mbit/s\"\n", "E-KEY-UNUSED", 13, 1, "not used by kind = \"cut\""},
      {cut + when + "site = \"w0\"\n", "E-KEY-UNUSED", 13, 1, "not used by kind = \"cut\""},
      {"kind = \"rate\"\nbetween = [\"w0\", \"w1\"]\n" + when, "E-KEY-MISSING", 8, 1, "5Mbit/s"},
      {slow + when, "E-KEY-MISSING", 8, 1, "pace = 0.25"},
      {slow + when + "pace = 0\n", "E-RANGE", 13, 8, "pace"},
      {"kind = \"pause\"\nsite = \"wx\"\n" + when, "E-VALUE", 10, 8, "did you mean 'w0'?"},
      {"kind = \"cut\"\nbetween = [\"w0\", \"east\"]\n" + when, "E-VALUE", 10, 11, "sites: w0, w1"},
      {"kind = \"cut\"\nbetween = [\"w0\", \"w0\"]\n" + when, "E-CONFLICT", 10, 11, "itself"},
      {cut + when + "until = \"2s\"\n", "E-KEY-UNKNOWN", 13, 1, "keys of [fault]"},
  };
  for (const Case& wanted : cases) {
    const auto found = diagnostics_of(with_fault(wanted.keys));
    ASSERT_EQ(found.size(), 1U) << wanted.keys;
    EXPECT_EQ(found[0].code, wanted.code) << wanted.keys;
    EXPECT_EQ(found[0].line, wanted.line) << wanted.keys;
    EXPECT_EQ(found[0].column, wanted.column) << wanted.keys;
    const std::string said = found[0].message + " " + found[0].hint;
    EXPECT_NE(said.find(wanted.words), std::string::npos) << said;
  }
}

TEST(ConfigFaults, ARunOfOneSiteHasNoLinkToCut) {
  const auto found = diagnostics_of(
      std::string(kMinimal) +
      "[[fault]]\nkind = \"cut\"\nbetween = [\"*\", \"*\"]\nat = \"1s\"\nlasts = \"1s\"\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "E-CONFLICT");
}

// How long ranks wait for one that hangs changes no result.
TEST(ConfigFaults, ARanksPatienceIsKeptAndEntersNoDigest) {
  const Config none = load_minimal();
  const Config set = load_minimal({"parallel.patience=3s"});
  EXPECT_FALSE(none.rank_patience.has_value());
  EXPECT_EQ(set.rank_patience, std::optional<Duration>(std::chrono::seconds(3)));
  EXPECT_EQ(config_digest(set), config_digest(none));
  EXPECT_EQ(outcome_digest(set), outcome_digest(none));
  EXPECT_NE(resolved_toml(set).find("patience = \"3s\""), std::string::npos);
  // What is left out stays left out in the run's own file: ranks that are threads then have none.
  EXPECT_FALSE(load(resolved_toml(none)).rank_patience.has_value());
  EXPECT_TRUE(load(resolved_toml(set)).rank_patience.has_value());
}

}  // namespace
}  // namespace isthmus::this_file
