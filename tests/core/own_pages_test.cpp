// SPDX-License-Identifier: Apache-2.0
#include "core/state/own_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace isthmus::this_file {
namespace {

constexpr std::size_t kSize = std::size_t{1} << 20;

bool is_mapped(float* values) {
  unsigned char resident = 0;
  errno = 0;
  return ::mincore(values, 1, &resident) == 0 || errno != ENOMEM;
}

TEST(OwnPages, StartAsZerosAndGoBackWhenTheyAreFreed) {
  OwnPages pages(kSize);
  float* const at = pages.span().data();
  ASSERT_EQ(pages.span().size(), kSize);
  EXPECT_TRUE(std::ranges::all_of(pages.span(), [](float value) { return value == 0; }));
  std::ranges::fill(pages.span(), 1.0f);
  EXPECT_TRUE(is_mapped(at));
  pages = {};
  EXPECT_TRUE(pages.empty());
  EXPECT_FALSE(is_mapped(at));
}

TEST(OwnPages, MoveWithTheirValues) {
  OwnPages first(kSize);
  first.span().back() = 3;
  float* const at = first.span().data();
  OwnPages second(std::move(first));
  EXPECT_EQ(second.span().data(), at);
  EXPECT_EQ(second.span().back(), 3);
  EXPECT_TRUE(OwnPages(0).empty());
}

}  // namespace
}  // namespace isthmus::this_file
