// SPDX-License-Identifier: Apache-2.0
// Ways files, and net.table, which names one: what is written is read, what does not fit is told by
// place.
#include "config/load/collective_table_file.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "config_fixture.h"
#include "core/temporary_directory.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kFile = R"toml(sites = ["a", "b", "c"]
[[way]]
bytes = 4096
[[way]]
bytes = 1000000
name = "shares by links (2:0:1)"
shares = [2, 0, 1]
predicted_s = 0.25
played_s = 1
)toml";

std::string refusal(std::string_view text) {
  try {
    (void)read_ways_text(text, "ways.toml");
    return "";
  } catch (const ConfigErrors& error) {
    return error.what();
  }
}

/// kFile with `old` replaced.
std::string with(const std::string& old, const std::string& other) {
  std::string text(kFile);
  text.replace(text.find(old), old.size(), other);
  return text;
}

TEST(CollectiveTable, SizesAndSharesAreRead) {
  const CollectiveTable file = read_ways_text(kFile, "ways.toml");
  EXPECT_THAT(file.sites, testing::ElementsAre("a", "b", "c"));
  ASSERT_EQ(file.ways.size(), 2u);
  EXPECT_EQ(file.ways[0].way, (WayConfig{4096, {}}));
  EXPECT_EQ(file.ways[1].way, (WayConfig{1'000'000, {2, 0, 1}}));
  EXPECT_EQ(file.ways[1].predicted_s, 0.25);
  EXPECT_EQ(file.ways[1].played_s, 1);
}

TEST(CollectiveTable, WhatIsWrittenIsReadBack) {
  CollectiveTable file = read_ways_text(kFile, "ways.toml");
  file.sites[0] = "quote \" and\\back";
  file.ways[0].even_s = 1.0 / 3;
  const CollectiveTable again = read_ways_text(ways_toml(file, "how\nit came"), "ways.toml");
  EXPECT_EQ(again.sites, file.sites);
  ASSERT_EQ(again.ways.size(), file.ways.size());
  for (std::size_t i = 0; i < again.ways.size(); ++i) {
    EXPECT_EQ(again.ways[i].way, file.ways[i].way);
    EXPECT_EQ(again.ways[i].name, file.ways[i].name);
    EXPECT_EQ(again.ways[i].predicted_s, file.ways[i].predicted_s);
    EXPECT_EQ(again.ways[i].even_s, file.ways[i].even_s);
  }
}

TEST(CollectiveTable, WhatIsWrongIsToldWithItsPlace) {
  EXPECT_THAT(refusal(with("bytes = 4096", "bytes = 0")),
              AllOf(HasSubstr("ways.toml:3:9"), HasSubstr("'way.bytes = 0'"), HasSubstr("[1, ")));
  EXPECT_THAT(refusal(with("bytes = 4096", "bytes = \"4KiB\"")),
              AllOf(HasSubstr("ways.toml:3:9"), HasSubstr("must be an integer")));
  EXPECT_THAT(refusal(with("bytes = 4096\n", "")), HasSubstr("[[way]] without 'bytes'"));
  EXPECT_THAT(refusal(with("bytes = 4096", "bytes = 1000000")),
              AllOf(HasSubstr("of 1000000 bytes behind one of 1000000"), HasSubstr("rise")));
  EXPECT_THAT(refusal(with("[2, 0, 1]", "[2, 1]")), HasSubstr("2 numbers for 3 sites"));
  EXPECT_THAT(refusal(with("[2, 0, 1]", "[0, 0, 1]")),
              AllOf(HasSubstr("ways.toml:7:10"), HasSubstr("fewer than two sites")));
  EXPECT_THAT(refusal(with("[2, 0, 1]", "[2, -1, 1]")), HasSubstr("'way.shares = -1'"));
  EXPECT_THAT(refusal(with("[2, 0, 1]", "[2, 2000000, 1]")), HasSubstr("2000000"));
  EXPECT_THAT(refusal(with("[2, 0, 1]", "3")), HasSubstr("must be a list"));
  EXPECT_THAT(refusal(with("0.25", "-1")), HasSubstr("'way.predicted_s = -1'"));
  EXPECT_THAT(refusal(with("0.25", "inf")), HasSubstr("must be seconds"));
  EXPECT_THAT(refusal(with("played_s", "playd_s")), HasSubstr("unknown key 'way.playd_s'"));
  EXPECT_THAT(refusal(with("[\"a\", \"b\", \"c\"]", "[\"a\", \"b\", \"a\"]")), HasSubstr("twice"));
  EXPECT_THAT(refusal(with("sites = [\"a\", \"b\", \"c\"]", "")), HasSubstr("'sites' names 0"));
  EXPECT_THAT(refusal("sites = [\"a\"]\n"), HasSubstr("no [[way]]"));
  EXPECT_THAT(refusal("[[link]]\nbetween = [\"a\", \"b\"]\n"),
              AllOf(HasSubstr("'link' in a ways file"), HasSubstr("bench collectives")));
  EXPECT_THAT(refusal("sites = [\n"), HasSubstr("ways.toml:"));
}

TEST(CollectiveTable, TheDigestIsOfSizesAndSharesAlone) {
  const auto digest = [](std::string_view text) {
    std::vector<WayConfig> ways;
    for (const NotedWay& noted : read_ways_text(text, "ways.toml").ways) ways.push_back(noted.way);
    return ways_digest(ways);
  };
  EXPECT_EQ(digest(kFile), digest(with("0.25", "0.5")));
  EXPECT_NE(digest(kFile), digest(with("4096", "4097")));
  EXPECT_NE(digest(kFile), digest(with("[2, 0, 1]", "[2, 1, 1]")));
}

// ---- as a configuration names it

class TableOfWays : public ::testing::Test {
 protected:
  void write(const std::string& name, std::string_view text) const {
    std::ofstream(folder_.path() / name) << text;
  }
  [[nodiscard]] Config load_file(const std::string& net, std::string_view sites = "abc") const {
    std::string text = std::string(kMinimal) + "[outer]\nmethod = \"diloco\"\n[net]\n" + net;
    for (const char site : sites) text += std::string("[[site]]\nname = \"") + site + "\"\n";
    return load_config_text(text, folder_.path() / "run.toml", {"train.global_batch=384 tok"},
                            test_context());
  }
  [[nodiscard]] std::string refused(const std::string& net, std::string_view sites = "abc") const {
    try {
      (void)load_file(net, sites);
      return "";
    } catch (const ConfigErrors& errors) {
      return errors.what();
    }
  }
  TemporaryDirectory folder_;
};

const std::string kTable = "shares = \"table\"\ntable = \"ways.toml\"\n";

TEST_F(TableOfWays, IsReadFromBesideTheFile) {
  write("ways.toml", kFile);
  const Config config = load_file(kTable);
  EXPECT_EQ(config.net.table, folder_.path() / "ways.toml");
  ASSERT_EQ(config.net.ways.size(), 2u);
  EXPECT_EQ(config.net.ways[1], (WayConfig{1'000'000, {2, 0, 1}}));
  const Config again =
      load_config_text(resolved_toml(config), "/elsewhere/run.toml", {}, test_context());
  EXPECT_EQ(again.net.ways, config.net.ways);
}

// It changes when things happen, never what.
TEST_F(TableOfWays, IsPartOfTheOutcomeAloneByWhatItSays) {
  write("ways.toml", kFile);
  write("copy.toml", "# elsewhere\n" + std::string(kFile));
  write("other.toml", with("[2, 0, 1]", "[2, 1, 1]"));
  const Config config = load_file(kTable);
  const Config copy = load_file("shares = \"table\"\ntable = \"copy.toml\"\n");
  const Config other = load_file("shares = \"table\"\ntable = \"other.toml\"\n");
  const Config none = load_file("");
  EXPECT_EQ(config_digest(config), config_digest(none));
  EXPECT_EQ(outcome_digest(config), outcome_digest(copy));
  EXPECT_NE(outcome_digest(config), outcome_digest(other));
  EXPECT_NE(outcome_digest(config), outcome_digest(none));
  const Config unused = load_file("table = \"absent.toml\"\n");
  EXPECT_EQ(outcome_digest(unused), outcome_digest(none)) << "without shares = \"table\"";
  EXPECT_TRUE(unused.net.ways.empty());
}

TEST_F(TableOfWays, WhatDoesNotFitIsRefusedByName) {
  write("ways.toml", kFile);
  EXPECT_THAT(refused("shares = \"table\"\n"), HasSubstr("without net.table"));
  EXPECT_THAT(refused("shares = \"table\"\ntable = \"absent.toml\"\n"),
              AllOf(HasSubstr("'net.table'"), HasSubstr("absent.toml: no such file"),
                    HasSubstr("bench collectives")));
  EXPECT_THAT(refused(kTable, "acb"),
              AllOf(HasSubstr("'net.table'"), HasSubstr("is for sites a, b, c"),
                    HasSubstr("this file has a, c, b")));
  EXPECT_THAT(refused(kTable + "reduction = \"groups\"\n"),
              HasSubstr("for which there is no form"));
  write("ways.toml", with("bytes = 4096", "bytes = 0"));
  EXPECT_THAT(refused(kTable), AllOf(HasSubstr("'net.table'"), HasSubstr("ways.toml:3:9")));
}

}  // namespace
}  // namespace isthmus::this_file
