// SPDX-License-Identifier: Apache-2.0
#include "core/base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/suggest.h"

namespace isthmus::this_file {
namespace {

struct Good {
  const char* text;
  Dimension dimension;
  double value;
};

class UnitsAccepted : public testing::TestWithParam<Good> {};

TEST_P(UnitsAccepted, HaveTheValueOfTheirDefinition) {
  const auto quantity = parse_quantity(GetParam().text, GetParam().dimension);
  ASSERT_TRUE(quantity) << quantity.error().text;
  EXPECT_DOUBLE_EQ(quantity->value, GetParam().value);
}

INSTANTIATE_TEST_SUITE_P(
    Table, UnitsAccepted,
    testing::Values(
        Good{"80ms", Dimension::kTime, 0.08}, Good{"80 ms", Dimension::kTime, 0.08},
        Good{"10min", Dimension::kTime, 600}, Good{"2h", Dimension::kTime, 7200},
        Good{"1d", Dimension::kTime, 86400}, Good{"250us", Dimension::kTime, 250e-6},
        Good{"7ns", Dimension::kTime, 7e-9}, Good{"1e3s", Dimension::kTime, 1000},
        Good{"100Mbit/s", Dimension::kRate, 100e6}, Good{"1 Gbit/s", Dimension::kRate, 1e9},
        Good{"100MiB/s", Dimension::kRate, 100 * 1048576. * 8},
        Good{"100MB/s", Dimension::kRate, 800e6}, Good{"8bit/s", Dimension::kRate, 8},
        Good{"4MiB", Dimension::kBytes, 4194304}, Good{"4MB", Dimension::kBytes, 4e6},
        Good{"12B", Dimension::kBytes, 12}, Good{"192 tok", Dimension::kTokens, 192},
        Good{"16k tok", Dimension::kTokens, 16000}, Good{"16Ki tok", Dimension::kTokens, 16384},
        Good{"3M", Dimension::kTokens, 3e6}, Good{"2Gi", Dimension::kTokens, 2147483648.},
        Good{"16ktok", Dimension::kTokens, 16000}, Good{"20 steps", Dimension::kSteps, 20},
        Good{"1 step", Dimension::kSteps, 1}, Good{"5%", Dimension::kSteps, 0.05},
        Good{"0.1%", Dimension::kFraction, 0.001}, Good{"0.25", Dimension::kFraction, 0.25},
        Good{"40TFLOPS", Dimension::kFlops, 40e12}, Good{"1GFLOP/s", Dimension::kFlops, 1e9},
        Good{"1B", Dimension::kParameters, 1e9}, Good{"350M", Dimension::kParameters, 350e6}));

struct Bad {
  const char* text;
  Dimension dimension;
  UnitError::Kind kind;
};

class UnitsRefused : public testing::TestWithParam<Bad> {};

TEST_P(UnitsRefused, SayWhatIsWrong) {
  const auto quantity = parse_quantity(GetParam().text, GetParam().dimension);
  ASSERT_FALSE(quantity) << "read as " << quantity->value;
  EXPECT_EQ(quantity.error().kind, GetParam().kind) << quantity.error().text;
  EXPECT_FALSE(quantity.error().hint.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Table, UnitsRefused,
    testing::Values(Bad{"80", Dimension::kTime, UnitError::Kind::kMissing},
                    Bad{"80m", Dimension::kTime, UnitError::Kind::kWrong},
                    Bad{"80MS", Dimension::kTime, UnitError::Kind::kWrong},
                    Bad{"100", Dimension::kRate, UnitError::Kind::kMissing},
                    Bad{"100Mbps", Dimension::kRate, UnitError::Kind::kWrong},
                    Bad{"100M", Dimension::kRate, UnitError::Kind::kWrong},
                    Bad{"100mbit/s", Dimension::kRate, UnitError::Kind::kWrong},
                    Bad{"4", Dimension::kBytes, UnitError::Kind::kMissing},
                    Bad{"4Mb", Dimension::kBytes, UnitError::Kind::kWrong},
                    Bad{"16K tok", Dimension::kTokens, UnitError::Kind::kWrong},
                    Bad{"5 parsecs", Dimension::kSteps, UnitError::Kind::kWrong},
                    Bad{"", Dimension::kTime, UnitError::Kind::kNumber},
                    Bad{"fast", Dimension::kRate, UnitError::Kind::kNumber},
                    Bad{"nan s", Dimension::kTime, UnitError::Kind::kNumber},
                    Bad{"inf s", Dimension::kTime, UnitError::Kind::kNumber},
                    Bad{"1e999s", Dimension::kTime, UnitError::Kind::kRange},
                    Bad{"1e300Gbit/s", Dimension::kRate, UnitError::Kind::kRange}));

TEST(Units, ABareNumberOfTokensHasNoUnit) {
  EXPECT_FALSE(parse_quantity("192", Dimension::kTokens)->unit);
  EXPECT_FALSE(parse_quantity("16k", Dimension::kTokens)->unit);
  EXPECT_TRUE(parse_quantity("16k tok", Dimension::kTokens)->unit);
}

TEST(Units, WrittenDurationsReadBackExactly) {
  for (const Duration::rep ns :
       {0LL, 1LL, 999LL, 1'000LL, 1'500'000LL, 80'000'000LL, 900'000'000LL, 60'000'000'000LL,
        3'600'000'000'000LL, 86'400'000'000'000LL, 123'456'789'123'456LL}) {
    const std::string text = duration_text(Duration(ns));
    const auto quantity = parse_quantity(text, Dimension::kTime);
    ASSERT_TRUE(quantity) << text;
    EXPECT_EQ(to_duration(quantity->value)->count(), ns) << text;
  }
}

TEST(Units, WrittenRatesAndSharesReadBackExactly) {
  for (const double value : {1., 8., 100e6, 1.5e9, 123456789., 838860800., 0.1}) {
    EXPECT_EQ(parse_quantity(rate_text(value), Dimension::kRate)->value, value) << rate_text(value);
  }
  EXPECT_EQ(percent_text(0.05), "5%");
  EXPECT_EQ(percent_text(1), "100%");
  EXPECT_EQ(percent_text(0.033), "3.3%");
  for (const double value : {0.05, 0.1, 1. / 3, 2. / 3, 0.999, 1e-9, 0., 1.}) {
    EXPECT_EQ(parse_quantity(percent_text(value), Dimension::kSteps)->value, value)
        << percent_text(value);
  }
}

TEST(Units, TimesBeyondACenturyAreRefused) {
  EXPECT_FALSE(to_duration(1e11));
  EXPECT_FALSE(to_duration(NAN));
  EXPECT_EQ(to_duration(1e-9)->count(), 1);
}

TEST(Units, NumbersForPeople) {
  EXPECT_EQ(with_commas(4210), "4,210");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(54630810), "54.6 MB");
  EXPECT_EQ(human_bytes(4e9), "4.00 GB");
  EXPECT_EQ(human_bytes(999'999), "1.00 MB");
  EXPECT_EQ(human_bytes(9.996e6), "10.0 MB");
  EXPECT_EQ(human_bytes(NAN), "–");
  EXPECT_EQ(human_time(7500), "2 h 05 min");
  EXPECT_EQ(human_time(0.08), "80 ms");
  EXPECT_EQ(human_rate(412e6), "412 Mbit/s");
}

TEST(Suggest, DistanceIsThatOfOptimalStringAlignment) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("momentun", "momentum"), 1U);
  EXPECT_EQ(edit_distance("dlioco", "diloco"), 1U);  // one swap
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("H", "h"), 0U);
}

TEST(Suggest, NamesTheNearestWordOrNone) {
  const std::vector<std::string> words = {"momentum", "method", "lr"};
  EXPECT_EQ(closest("momentun", words), "momentum");
  EXPECT_EQ(closest("metod", words), "method");
  EXPECT_EQ(closest("zebra", words), std::nullopt);
  EXPECT_EQ(closest(std::string(10000, 'x'), words), std::nullopt);
}

}  // namespace
}  // namespace isthmus::this_file
