// SPDX-License-Identifier: Apache-2.0
// Caps of what a site sends, and the hours they hold.
#include "config/schema/send_cap.h"

#include <gtest/gtest.h>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

constexpr int clock_time(int hour, int minute = 0) { return hour * 60 + minute; }

constexpr std::string_view kTwoSites = R"([data]
source = "text:input.txt"
[train]
steps = 100
global_batch = "1280 tok"
[[site]]
name = "east"
cap = "20Mbit/s"
[[site]]
name = "west"
)";

SendCap cap_of(std::size_t site, const std::vector<std::string>& overrides) {
  const Config config = load(kTwoSites, overrides);
  return {config, config.sites[site]};
}

TEST(SendCap, OfTheSiteGoesBeforeThatOfAll) {
  EXPECT_EQ(cap_of(0, {}).at(0), 20e6);
  EXPECT_EQ(cap_of(1, {}).at(0), 0) << "no bound";
  EXPECT_EQ(cap_of(0, {"net.cap=5Mbit/s"}).at(0), 20e6);
  EXPECT_EQ(cap_of(1, {"net.cap=5MB/s"}).at(0), 40e6);
}

TEST(SendCap, WhatIsGivenToAJoinerHasARateOfItsOwn) {
  EXPECT_EQ(load(kTwoSites, {}).net.serve_bits_per_s, std::nullopt);
  const Config config = load(kTwoSites, {"net.serve=2Mbit/s"});
  EXPECT_EQ(config.net.serve_bits_per_s, 2e6);
  EXPECT_EQ(config_digest(config), config_digest(load(kTwoSites, {})));
  EXPECT_THROW((void)load(kTwoSites, {"net.serve=100kbit/s"}), ConfigError);
}

TEST(SendCap, WhatIsRetainedHasALimitThatChangesNoResult) {
  EXPECT_EQ(load(kTwoSites, {}).net.heal_bytes, std::nullopt);
  const Config config = load(kTwoSites, {"net.heal=3MiB"});
  EXPECT_EQ(config.net.heal_bytes, 3 << 20);
  EXPECT_EQ(load(kTwoSites, {"net.heal=0B"}).net.heal_bytes, 0);
  EXPECT_EQ(config_digest(config), config_digest(load(kTwoSites, {})));
  EXPECT_THROW((void)load(kTwoSites, {"net.heal=3"}), ConfigError) << "without a unit";
}

TEST(SendCap, TheLowestOfAllThatHoldCounts) {
  const std::vector<std::string> quiet = {
      R"(net.quiet=["08:00-18:00 10Mbit/s", "12:00-13:30 50Mbit/s", "22:00-06:00 1Mbit/s"])"};
  const SendCap east = cap_of(0, quiet);
  const SendCap west = cap_of(1, quiet);
  EXPECT_EQ(east.at(clock_time(7, 59)), 20e6);
  EXPECT_EQ(west.at(clock_time(7, 59)), 0);
  EXPECT_EQ(west.at(clock_time(8)), 10e6);
  EXPECT_EQ(west.at(clock_time(12, 30)), 10e6);
  EXPECT_EQ(east.at(clock_time(17, 59)), 10e6);
  EXPECT_EQ(east.at(clock_time(18)), 20e6);
  EXPECT_EQ(west.at(clock_time(21, 59)), 0);
  EXPECT_EQ(west.at(clock_time(22)), 1e6);
  EXPECT_EQ(west.at(clock_time(0)), 1e6);
  EXPECT_EQ(west.at(clock_time(5, 59)), 1e6);
  EXPECT_EQ(west.at(clock_time(6)), 0);
}

TEST(SendCap, HoursMayEndAtMidnight) {
  for (const char* text : {"20:00-24:00 8kB/s", "20:00-00:00 64kbit/s"}) {
    const QuietHours hours = parse_quiet_hours(text);
    EXPECT_TRUE(hours.contains(clock_time(23, 59))) << text;
    EXPECT_FALSE(hours.contains(0)) << text;
    EXPECT_FALSE(hours.contains(clock_time(19, 59))) << text;
    EXPECT_EQ(hours.bits_per_s, 64e3);
  }
}

TEST(SendCap, WhatIsNoHoursAndNoRateIsRefused) {
  for (const char* bad :
       {"", "10Mbit/s", "08:00-18:00", "08:00-18:00 ", "08:00-18:00 10", "08:00-18:00 0bit/s",
        "08:00-18:00 999bit/s", "08:00-18:00 -1Mbit/s", "8:00-18:00 1Mbit/s", "08:60-18:00 1Mbit/s",
        "08:00-24:01 1Mbit/s", "08:00-25:00 1Mbit/s", "08:00 18:00 1Mbit/s", "08:00-08:00 1Mbit/s",
        "00:00-24:00 1Mbit/s", "08:00–18:00 1Mbit/s", "08.00-18.00 1Mbit/s"}) {
    EXPECT_THROW((void)parse_quiet_hours(bad), ConfigError) << bad;
  }
}

TEST(SendCap, IsNoPartOfAnyDigestAndKeptByTheResolvedFile) {
  const Config without = load(kTwoSites);
  const Config with = load(kTwoSites, {"net.cap=5Mbit/s", R"(net.quiet=["08:00-18:00 10Mbit/s"])"});
  EXPECT_EQ(config_digest(with), config_digest(without));
  EXPECT_EQ(outcome_digest(with), outcome_digest(without));
  EXPECT_EQ(common_values(with), common_values(without));
  const Config again = load(resolved_toml(with));
  EXPECT_EQ(again.net.cap_bits_per_s, 5e6);
  EXPECT_EQ(again.net.quiet, with.net.quiet);
  EXPECT_EQ(again.sites[0].cap_bits_per_s, 20e6);
  EXPECT_FALSE(again.sites[1].cap_bits_per_s.has_value());
}

}  // namespace
}  // namespace isthmus::this_file
