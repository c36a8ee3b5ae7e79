// SPDX-License-Identifier: Apache-2.0
// CSV files of a link's rates over time: what they say, each wrong line told by its place, and what
// a configuration with one keeps and compares.
#include "config/load/link_trace.h"

#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <string>

#include "config_fixture.h"
#include "core/temporary_directory.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const std::string kHeading = "seconds,rate_up,rate_down\n";

LinkTrace parse(const std::string& lines) { return parse_link_trace(kHeading + lines, "day.csv"); }

TEST(LinkTrace, LinesHoldFromTheirTimeWithUnitsOrPlainBits) {
  const LinkTrace trace = parse_link_trace(
      "seconds, rate_up ,rate_down\r\n0,100Mbit/s,20Mbit/s\r\n0.25, 12.5MB/s,4e6\n60,repeat",
      "day.csv");
  const std::vector<LinkTrace::Step> expected = {{0s, 100e6, 20e6}, {250ms, 100e6, 4e6}};
  EXPECT_EQ(trace.steps, expected);
  EXPECT_EQ(trace.period, Duration(60s));
}

// 10 s at 100 kbit/s and 30 s at 20 are 1600 kbit in 40 s.
TEST(LinkTrace, ItsMeanIsThatOfAPeriodOrTheRateThatStays) {
  const LinkTrace repeats = parse("0,100e3,8e3\n10,20e3,8e3\n40,repeat\n");
  EXPECT_DOUBLE_EQ(repeats.mean_up(), 40e3);
  EXPECT_DOUBLE_EQ(repeats.mean_down(), 8e3);
  const LinkTrace stays = parse("0,100e3,8e3\n10,20e3,9e3\n");
  EXPECT_EQ(stays.period, Duration(0s));
  EXPECT_EQ(stays.mean_up(), 20e3);
  EXPECT_EQ(stays.mean_down(), 9e3);
}

TEST(LinkTrace, WhatIsWrongIsToldByLineAndColumn) {
  struct Case {
    std::string text;
    const char* told;
  };
  const Case cases[] = {
      {"", "day.csv:1: no rates"},
      {kHeading, "day.csv:2: no rates"},
      {"time,up,down\n0,1,1\n", "day.csv:1:1: 'time,up,down': the heading must be"},
      {kHeading + "1,5,5\n", "day.csv:2:1: '1': the first time must be 0"},
      {kHeading + "0,5e3,5e3\n10,5e3,5e3\n10,6e3,6e3\n", "day.csv:4:1: '10': times must ascend"},
      {kHeading + "0,5e3,5e3\n -1,5,5\n", "day.csv:3:2: '-1': a time must be"},
      {kHeading + "0,5e3,5e3\n5s,5,5\n", "day.csv:3:1: '5s': a time must be"},
      {kHeading + "0,5e3,5e3\nnan,5,5\n", "day.csv:3:1: 'nan': a time must be"},
      {kHeading + "0,5e3,5e3\n2e9,5,5\n", "day.csv:3:1: '2e9': a time must be"},
      {kHeading + "0,0,5e3\n", "day.csv:2:3: '0': a rate must be in"},
      {kHeading + "0,5e3, 0.5\n", "day.csv:2:8: '0.5': a rate must be in"},
      {kHeading + "0,999,5e3\n", "day.csv:2:3: '999': a rate must be in [1e3, 1e15]"},
      {kHeading + "0,1e4,1bit/s\n", "day.csv:2:7: '1bit/s': a rate must be in [1e3, 1e15]"},
      {kHeading + "0,1Mbit/s,1Mbit/s\n1e-7,repeat\n",
       "day.csv:3:1: '1e-7': less than 1 ms after the time before"},
      {kHeading + "0,5e3,5e3\n1,5e3,5e3\n1.0009,6e3,6e3\n",
       "day.csv:4:1: '1.0009': less than 1 ms after"},
      {kHeading + "0,5e3,inf\n", "day.csv:2:7: 'inf': not a rate"},
      {kHeading + "0,100Mbps,5e3\n", "day.csv:2:3: '100Mbps': not a rate"},
      {kHeading + "0,5e3,\n", "day.csv:2:7: '': not a rate"},
      {kHeading + "0,5\n", "day.csv:2:3: '5': a line has three values"},
      {kHeading + "0,5,5,5\n", "day.csv:2:7: '5': a line has three values"},
      {kHeading + "0,5e3,5e3\n\n", "day.csv:3:1: '': an empty line"},
      {kHeading + "0,repeat\n", "day.csv:2:1: '0': a file cannot repeat before"},
      {kHeading + "0,5e3,5e3\n0,repeat\n", "day.csv:3:1: '0': times must ascend"},
      {kHeading + "0,5e3,5e3\n9,repeat\n10,5,5\n", "day.csv:4:1: '10': nothing may follow"},
  };
  for (const Case& each : cases) {
    const auto message =
        message_of<ConfigError>([&] { (void)parse_link_trace(each.text, "day.csv"); });
    EXPECT_THAT(message, HasSubstr(each.told));
  }
}

TEST(LinkTrace, TheShortestPieceAndTheLowestRateAreTaken) {
  const LinkTrace trace = parse("0,1e3,1kbit/s\n0.001,5e3,5e3\n0.002,repeat\n");
  EXPECT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(trace.period, Duration(2ms));
}

TEST(LinkTrace, TheDigestIsOfRatesAndTimesNotOfSpellings) {
  const std::string digest = parse("0,1Mbit/s,2e3\n10,5e3,5e3\n").digest();
  EXPECT_EQ(parse("0.0,1e6, 2000\r\n10,5e3,5kbit/s").digest(), digest);
  EXPECT_NE(parse("0,1Mbit/s,2e3\n10,5e3,6e3\n").digest(), digest);
  EXPECT_NE(parse("0,1Mbit/s,2e3\n11,5e3,5e3\n").digest(), digest);
  EXPECT_NE(parse("0,1Mbit/s,2e3\n10,5e3,5e3\n20,repeat\n").digest(), digest);
}

/// A configuration in a folder of its own, whose one link has `keys`.
class ConfigLinkTrace : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    const std::filesystem::path file = folder_ / name;
    std::ofstream(file) << text;
    return file;
  }
  Config load_with(const std::string& keys) {
    return load_config(write("run.toml", std::string(kMinimal) +
                                             "[run]\nworkers = 2\n[[link]]\nbetween = [\"*\", "
                                             "\"*\"]\n" +
                                             keys),
                       {}, test_context());
  }
  std::string refusal(const std::string& keys) {
    return message_of<ConfigErrors>([&] { (void)load_with(keys); });
  }
  TemporaryDirectory folder_;
};

TEST_F(ConfigLinkTrace, IsRelativeToTheFileAndSurvivesTheResolvedText) {
  const auto csv = write("day.csv", kHeading + "0,100e3,8e3\n10,20e3,8e3\n40,repeat\n");
  const Config config = load_with("trace = \"day.csv\"\nrtt = \"80ms\"\n");
  ASSERT_EQ(config.links.size(), 1U);
  EXPECT_EQ(config.links[0].trace, csv);
  EXPECT_EQ(config.links[0].bits_per_s_up, 40e3);
  EXPECT_EQ(config.links[0].bits_per_s_down, 8e3);
  const std::string text = resolved_toml(config);
  EXPECT_THAT(without_comments(text), testing::Not(HasSubstr("\nrate")));
  const Config again = load(text);  // from another folder
  EXPECT_EQ(again.links[0].trace, csv);
  EXPECT_EQ(outcome_digest(again), outcome_digest(config));
}

TEST_F(ConfigLinkTrace, ItsContentIsPartOfTheOutcomeAndItsPathIsNot) {
  write("one.csv", kHeading + "0,1Mbit/s,8e3\n");
  write("same.csv", kHeading + "0,1000000,8000\n");
  write("other.csv", kHeading + "0,1Mbit/s,9e3\n");
  const auto outcome = [&](const std::string& file) {
    return outcome_digest(load_with("trace = \"" + file + "\"\n"));
  };
  EXPECT_EQ(outcome("one.csv"), outcome("same.csv"));
  EXPECT_NE(outcome("one.csv"), outcome("other.csv"));
  EXPECT_EQ(config_digest(load_with("trace = \"one.csv\"\n")),
            config_digest(load_with("rate = \"1Gbit/s\"\n")));
}

TEST_F(ConfigLinkTrace, WrongUsesAreToldByPlace) {
  write("day.csv", kHeading + "0,100e3,8e3\n");
  write("bad.csv", kHeading + "0,5Mbps,8e3\n");
  EXPECT_EQ(refusal("trace = \"day.csv\"\n"), "");
  EXPECT_THAT(refusal("trace = \"day.csv\"\nrate = \"1Mbit/s\"\n"),
              HasSubstr("'link.trace' together with a rate"));
  EXPECT_THAT(refusal("trace = \"day.csv\"\nrate_up = \"1Mbit/s\"\n"),
              HasSubstr("'link.trace' together with a rate"));
  EXPECT_THAT(refusal("rtt = \"1ms\"\n"), HasSubstr("without a rate"));
  EXPECT_THAT(refusal("trace = \"\"\n"), HasSubstr("names no file"));
  EXPECT_THAT(refusal("trace = \"none.csv\"\n"), HasSubstr("none.csv: no such file"));
  EXPECT_THAT(refusal("trace = \".\"\n"), HasSubstr("is no file"));
  const std::string bad = refusal("trace = \"bad.csv\"\n");
  EXPECT_THAT(bad, HasSubstr("run.toml:10:9"));
  EXPECT_THAT(bad, HasSubstr("bad.csv:2:3: '5Mbps': not a rate"));
}

}  // namespace
}  // namespace isthmus::this_file
