// SPDX-License-Identifier: Apache-2.0
// How long a site waits that is cut off again and again. Time is a number.
#include "session/site/rejoin_backoff.h"

#include <gtest/gtest.h>

#include <vector>

namespace isthmus::app::this_file {
namespace {

using namespace std::chrono_literals;

/// Of a site that is in the run for so long each time.
std::vector<Duration> pauses(int times, Duration in_it, Duration gather = 1h) {
  RejoinBackoff pace(gather);
  TimePoint now{};
  std::vector<Duration> found;
  for (int k = 0; k < times; ++k) {
    now += in_it;
    found.push_back(pace.pause(now));
    now += found.back();
  }
  return found;
}

TEST(RejoinBackoff, WhoIsCutOffSoonAgainWaitsTwiceAsLongEachTime) {
  EXPECT_EQ(pauses(9, 20s),
            (std::vector<Duration>{0s, 10s, 20s, 40s, 80s, 160s, 320s, 10min, 10min}));
}

TEST(RejoinBackoff, WhoWasInForLongComesBackAtOnce) {
  EXPECT_EQ(pauses(4, 11min), (std::vector<Duration>(4, Duration{0})));
}

TEST(RejoinBackoff, NobodyIsAwayForLongerThanOthersWait) {
  EXPECT_EQ(pauses(4, 5s, 30s), (std::vector<Duration>{0s, 10s, 15s, 15s}));
  EXPECT_EQ(pauses(4, 15s, 30s), (std::vector<Duration>(4, Duration{0})));
}

}  // namespace
}  // namespace isthmus::app::this_file
