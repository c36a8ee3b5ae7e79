// SPDX-License-Identifier: Apache-2.0
// Groups of sites in a file. What is refused: config_errors_test.cpp.
#include <gtest/gtest.h>

#include "config_fixture.h"
#include "isthmus/config.h"

namespace isthmus::this_file {
namespace {

// Who sums what rounds otherwise; without groups a site's group is a name like any other.
TEST(Config, GroupsArePartOfWhatMustBeAlike) {
  const auto with = [](const std::string& first, const std::string& reduction) {
    return load(std::string(kMinimal) + "[outer]\nmethod = \"diloco\"\n" +
                "[[site]]\nname = \"a\"\ngroup = \"" + first +
                "\"\n[[site]]\nname = \"b\"\ngroup = \"y\"\n" + reduction);
  };
  const std::string groups = "[net]\nreduction = \"groups\"\n";
  const Config direct = with("x", "");
  EXPECT_EQ(config_digest(direct), config_digest(with("y", "")));
  EXPECT_EQ(outcome_digest(direct), outcome_digest(with("y", "")));
  EXPECT_EQ(common_values(direct), common_values(with("y", "")));
  EXPECT_EQ(config_digest(direct), config_digest(with("x", "[net]\nreduction = \"direct\"\n")));
  const Config grouped = with("x", groups);
  for (const Config& other : {direct, with("y", groups)}) {
    EXPECT_NE(config_digest(grouped), config_digest(other));
    EXPECT_NE(outcome_digest(grouped), outcome_digest(other));
    EXPECT_NE(common_values(grouped), common_values(other));
  }
  EXPECT_NE(resolved_toml(grouped).find("group = \"x\""), std::string::npos);
}

// They change when things happen, never what.
TEST(Config, SharesArePartOfTheOutcomeAloneUnlessTheyAreTheDefault) {
  const auto with = [](const std::string& net) { return load(std::string(kMinimal) + net); };
  const Config absent = with("");
  const Config by_default = with("[net]\nshares = \"auto\"\n");
  const Config links = with("[net]\nshares = \"links\"\n");
  EXPECT_EQ(absent.net.shares, "auto");
  EXPECT_EQ(config_digest(absent), config_digest(links));
  EXPECT_EQ(outcome_digest(absent), outcome_digest(by_default));
  EXPECT_NE(outcome_digest(absent), outcome_digest(links));
  EXPECT_NE(resolved_toml(links).find("shares = \"links\""), std::string::npos);
}

// Files, and resolved files of earlier runs, may have them.
TEST(Config, SharesOfEarlierVersionsAreReadAsEvenOnesWithANote) {
  const auto with = [](const std::string& net) { return load(std::string(kMinimal) + net); };
  const Config by_default = with("[net]\nshares = \"auto\"\n");
  EXPECT_TRUE(by_default.notes.empty());
  EXPECT_TRUE(with("[net]\ntable = \"\"\n").notes.empty()) << "it names nothing";
  const Config measured = with("[net]\nshares = \"measured\"\n");
  const Config table = with("[net]\nshares = \"table\"\ntable = \"ways.toml\"\n");
  EXPECT_EQ(measured.net.shares, "auto");
  EXPECT_EQ(table.net.shares, "auto");
  ASSERT_EQ(measured.notes.size(), 1U);
  EXPECT_EQ(
      measured.notes[0].find("net.shares = \"measured\" of an earlier version is read as \"auto\""),
      0U)
      << measured.notes[0];
  ASSERT_EQ(table.notes.size(), 2U);
  EXPECT_NE(table.notes[1].find("net.table = \"ways.toml\" of an earlier version is passed over"),
            std::string::npos)
      << table.notes[1];
  for (const Config& each : {measured, table}) {
    EXPECT_EQ(config_digest(each), config_digest(by_default));
    EXPECT_EQ(outcome_digest(each), outcome_digest(by_default));
    EXPECT_EQ(resolved_toml(each), resolved_toml(by_default));
  }
  EXPECT_EQ(load_minimal({"net.shares=measured"}).net.shares, "auto");
}

// A value that another one replaces steers nothing, so nothing is said about it.
TEST(Config, NotesOnEarlierValuesGoWithTheValue) {
  const std::string of_before =
      std::string(kMinimal) + "[net]\nshares = \"table\"\ntable = \"a\"\n";
  const auto notes = [&](const std::vector<std::string>& overrides) {
    return load_config_text(of_before, "run.toml", overrides).notes;
  };
  ASSERT_EQ(notes({}).size(), 2U);
  ASSERT_EQ(notes({"net.shares=links"}).size(), 1U);
  EXPECT_TRUE(notes({"net.shares=links"})[0].starts_with("net.table = \"a\""));
  EXPECT_TRUE(notes({"net.shares=auto", "net.table="}).empty());
  const std::vector<std::string> again = notes({"net.shares=measured", "net.table="});
  ASSERT_EQ(again.size(), 1U);
  EXPECT_TRUE(again[0].starts_with("net.shares = \"measured\"")) << again[0];
}

// Frames are cut alike at all members, and what is in them is nobody's result.
TEST(ConfigChunk, IsCommonAndSteersNothing) {
  const Config usual = load_minimal();
  const Config small = load_minimal({"net.chunk=64KiB"});
  EXPECT_EQ(usual.net.chunk, 1 << 20);
  EXPECT_EQ(small.net.chunk, 1 << 16);
  EXPECT_EQ(load_minimal({"net.chunk=100000B"}).net.chunk, 100'000);
  EXPECT_EQ(config_digest(small), config_digest(usual));
  EXPECT_NE(outcome_digest(small), outcome_digest(usual)) << "a simulation's clock";
  EXPECT_EQ(outcome_digest(load_minimal({"net.chunk=1MiB"})), outcome_digest(usual));
  EXPECT_NE(common_values(small), common_values(usual));
  EXPECT_EQ(load(resolved_toml(small)).net.chunk, 1 << 16) << resolved_toml(small);
}

}  // namespace
}  // namespace isthmus::this_file
