// SPDX-License-Identifier: Apache-2.0
#include "record/json_line.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace isthmus::app::this_file {
namespace {

TEST(JsonLine, ReadsBackThroughAnotherParser) {
  const std::vector<std::string> words = {"a", "b\"c"};
  const std::vector<double> reals = {0.1, -2};
  const std::string text = JsonLine()
                               .add("text", "quote \" slash \\ line \n bell \a umlaut ü")
                               .add("integer", std::int64_t{-5})
                               .add("unsigned", std::uint64_t{18446744073709551615ULL})
                               .add("flag", true)
                               .add_null("nothing")
                               .add("reals", std::span<const double>(reals))
                               .add("words", std::span<const std::string>(words))
                               .add_raw("inner", JsonLine().add("x", 1).str())
                               .str();
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["text"], "quote \" slash \\ line \n bell \a umlaut ü");
  EXPECT_EQ(json["integer"], -5);
  EXPECT_EQ(json["unsigned"], 18446744073709551615ULL);
  EXPECT_EQ(json["flag"], true);
  EXPECT_TRUE(json["nothing"].is_null());
  EXPECT_EQ(json["reals"], nlohmann::json(reals));
  EXPECT_EQ(json["words"], nlohmann::json(words));
  EXPECT_EQ(json["inner"]["x"], 1);
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

template <typename Real>
std::string number(Real value) {
  const std::string line = JsonLine().add("x", value).str();
  return line.substr(5, line.size() - 6);  // without {"x": and }
}

TEST(JsonLine, NumbersKeepTheirBits) {
  // A walk over bit patterns: every exponent, mantissas without structure.
  for (std::uint32_t i = 1; i < 0x7F800000U; i += 0x00345678U) {
    const auto value = std::bit_cast<float>(i);
    EXPECT_EQ(std::strtof(number(value).c_str(), nullptr), value) << number(value);
  }
  for (std::uint64_t i = 1; i < 0x7FF0000000000000ULL; i += 0x000FEDCBA9876543ULL) {
    const auto value = std::bit_cast<double>(i);
    EXPECT_EQ(nlohmann::json::parse(number(value)).get<double>(), value);
  }
}

TEST(JsonLine, NonFiniteNumbersAreStrings) {
  EXPECT_EQ(number(std::nan("")), "\"nan\"");
  EXPECT_EQ(number(std::numeric_limits<float>::infinity()), "\"inf\"");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "\"-inf\"");
}

TEST(JsonLine, BytesThatAreNoUtf8BecomeReplacements) {
  for (const char* bad : {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80"}) {
    const auto json = nlohmann::json::parse(json_quote(bad));
    EXPECT_NE(json.get<std::string>().find("\uFFFD"), std::string::npos);
  }
}

}  // namespace
}  // namespace isthmus::app::this_file
