// SPDX-License-Identifier: Apache-2.0
#include "report/data/text.h"

#include <gtest/gtest.h>

#include <limits>

#include "report/page/axis.h"

namespace isthmus::report::this_file {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Escape, MakesMarkupHarmlessAndRepairsBytes) {
  EXPECT_EQ(escape_html("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  EXPECT_EQ(escape_html("größe ≥ 3"), "größe ≥ 3");
  EXPECT_EQ(escape_html("\xff\xc0\xaf\x01"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(escape_html("\xed\xa0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
}

TEST(Escape, JsonCannotEndItsScript) {
  EXPECT_EQ(json_string("</script>"), "\"\\u003c/script\\u003e\"");
  EXPECT_EQ(json_string("a\"b\\c\nd"), "\"a\\\"b\\\\c\\nd\"");
}

TEST(Escape, CsvQuotesAndDisarmsFormulas) {
  EXPECT_EQ(csv_field("plain"), "plain");
  EXPECT_EQ(csv_field("a,\"b\""), "\"a,\"\"b\"\"\"");
  EXPECT_EQ(csv_field("=1+2"), "'=1+2");
  EXPECT_EQ(csv_field("-1.5"), "-1.5");
}

TEST(Format, NumbersReadAsPeopleWriteThem) {
  EXPECT_EQ(format_rate(1e8), "100 Mbit/s");
  EXPECT_EQ(format_seconds(0.08), "80.0 ms");
  EXPECT_EQ(format_seconds(14.24), "14.2 s");
  EXPECT_EQ(format_seconds(454), "7 min 34 s");
  EXPECT_EQ(format_seconds(64'200), "17 h 50 min");
  EXPECT_EQ(format_seconds(-1), "−1.00 s");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-1000), "−1,000");
  EXPECT_EQ(format_short_count(1e9), "1B");
  EXPECT_EQ(format_short_count(824'832), "824.8k");
  EXPECT_EQ(format_percent(0.0949), "9.5 %");
  EXPECT_EQ(format_percent(-0.0406), "−4.1 %");
  EXPECT_EQ(format_percent(-0.0001), "0.0 %");
  EXPECT_EQ(format_signed_percent(-0.25), "−25.00 %");
  EXPECT_EQ(format_signed_percent(0.0005), "+0.050 %");
  EXPECT_EQ(format_signed_percent(-1e-9), "0.000 %");
  EXPECT_EQ(format_ratio(19.04), "19.0");
  EXPECT_EQ(format_loss(1.65128), "1.6513");
}

TEST(Format, WhatIsNotANumberIsADash) {
  for (const double value : {kNan}) {
    EXPECT_EQ(format_seconds(value), "–");
    EXPECT_EQ(format_loss(value), "–");
    EXPECT_EQ(format_percent(value), "–");
    EXPECT_EQ(format_count(value), "–");
  }
  EXPECT_EQ(format_loss(kInfinity), "∞");
  EXPECT_EQ(exact(kNan), "null");
}

TEST(Axis, TicksOfTimeAreRoundOnAClock) {
  const Axis axis{.low = 0, .high = 3600, .log = false, .unit = AxisUnit::kSeconds};
  const std::vector<Tick> ticks = axis.ticks(6);
  ASSERT_GE(ticks.size(), 5u);
  EXPECT_EQ(ticks[1].label, "10 min");
  EXPECT_DOUBLE_EQ(ticks[1].position, 1.0 / 6);
}

// The same cases as in page_script_test.js: the interactive chart has the ticks of the drawn one.
TEST(Axis, TicksOfTimeSayTheirOwnTime) {
  struct Case {
    double low, high;
    std::string labels;
  };
  for (const Case& each : {
           Case{0, 400, "0 | 2 min | 4 min | 6 min"},
           Case{0, 42, "0 | 10 s | 20 s | 30 s | 40 s"},
           Case{100, 160, "100 s | 110 s | 120 s | 130 s | 140 s | 150 s | 160 s"},
           Case{0, 3600, "0 | 10 min | 20 min | 30 min | 40 min | 50 min | 60 min"},
           Case{0, 20000, "0 | 1 h | 2 h | 3 h | 4 h | 5 h"},
           Case{0, 2e6, "0 | 5 d | 10 d | 15 d | 20 d"},
           Case{0, 0.5, "0 | 100 ms | 200 ms | 300 ms | 400 ms | 500 ms"},
       }) {
    const Axis axis{.low = each.low, .high = each.high, .log = false, .unit = AxisUnit::kSeconds};
    std::string labels;
    for (const Tick& tick : axis.ticks(6)) labels += (labels.empty() ? "" : " | ") + tick.label;
    EXPECT_EQ(labels, each.labels);
  }
}

TEST(Axis, LogTicksOfBytesAreDecades) {
  const Axis axis = make_axis({1e6, 1e12}, true, AxisUnit::kBytes, false);
  const std::vector<Tick> ticks = axis.ticks(6);
  ASSERT_FALSE(ticks.empty());
  EXPECT_EQ(ticks.front().label, "1.00 MB");
  EXPECT_NEAR(ticks.front().position, 0, 1e-12);
}

TEST(Axis, SurvivesEveryRange) {
  for (const double low : {-1e300, -5.0, 0.0, 1e-300, 3.0, kNan, -kInfinity}) {
    for (const double high : {-1e300, 0.0, 1e-300, 3.0, 3.0 + 1e-15, 1e300, kInfinity}) {
      for (const bool log : {false, true}) {
        for (const AxisUnit unit : {AxisUnit::kPlain, AxisUnit::kBytes, AxisUnit::kSeconds}) {
          const Axis axis = make_axis({low, high}, log, unit, true);
          EXPECT_LT(axis.low, axis.high);
          EXPECT_LE(axis.ticks(6).size(), 72u);
        }
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::report::this_file
