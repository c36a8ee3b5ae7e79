// SPDX-License-Identifier: Apache-2.0
#include "core/base/deadline.h"

#include <gtest/gtest.h>

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;

TEST(Deadline, IsTheSumOrNever) {
  const TimePoint begin{5s};
  EXPECT_EQ(deadline_after(begin, 3s), TimePoint{8s});
  EXPECT_EQ(deadline_after(begin, 0s), begin);
  EXPECT_EQ(deadline_after(begin, Duration::max()), kNever);
  EXPECT_EQ(deadline_after(begin, kNever - begin), kNever);
  EXPECT_EQ(deadline_after(begin, kNever - begin - 1ns), kNever - 1ns);
  EXPECT_EQ(deadline_after(begin, kNever - begin + 1ns), kNever);
}

}  // namespace
}  // namespace isthmus::this_file
