// SPDX-License-Identifier: Apache-2.0
// Whole numbers in JSON and CBOR that anybody may have written.
#include "core/base/json_input.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace isthmus::this_file {
namespace {

using nlohmann::json;

TEST(WholeNumber, OfEachTypeToItsEnds) {
  EXPECT_EQ(whole_number<int>(json(7)), 7);
  EXPECT_EQ(whole_number<int>(json(std::int64_t{-2147483648})), std::numeric_limits<int>::min());
  EXPECT_EQ(whole_number<std::uint32_t>(json(4294967295U)), 4294967295U);
  EXPECT_EQ(whole_number<std::int64_t>(json(INT64_MIN)), INT64_MIN);
  EXPECT_EQ(whole_number<std::int64_t>(json(std::uint64_t{INT64_MAX})), INT64_MAX);
  EXPECT_EQ(whole_number<std::uint64_t>(json(UINT64_MAX)), UINT64_MAX);
}

TEST(WholeNumber, NotBeyondThem) {
  EXPECT_THROW(static_cast<void>(whole_number<int>(json(std::int64_t{1} << 31))),
               std::out_of_range);
  EXPECT_THROW(static_cast<void>(whole_number<int>(json(-(std::int64_t{1} << 31) - 1))),
               std::out_of_range);
  EXPECT_THROW(static_cast<void>(whole_number<std::uint32_t>(json(-1))), std::out_of_range);
  EXPECT_THROW(static_cast<void>(whole_number<std::uint64_t>(json(-1))), std::out_of_range);
  EXPECT_THROW(static_cast<void>(whole_number<std::int64_t>(json(std::uint64_t{1} << 63))),
               std::out_of_range);
}

TEST(WholeNumber, NothingElse) {
  for (const json& value : {json(1.0), json(std::nan("")), json(1e300), json(true), json("7"),
                            json(nullptr), json::array({7})}) {
    EXPECT_THROW(static_cast<void>(whole_number<int>(value)), std::out_of_range) << value;
  }
}

}  // namespace
}  // namespace isthmus::this_file
