// SPDX-License-Identifier: Apache-2.0
// What TCP has counted, over connections that break and come back.
#include "transport/links/link_tally.h"

#include <gtest/gtest.h>

#include <vector>

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using Each = std::vector<std::optional<LinkCounters>>;

LinkCounters counted(std::uint64_t segments, std::uint64_t retransmits, std::uint64_t acked_bytes,
                     Duration busy, Duration rtt) {
  LinkCounters made;
  made.segments = segments;
  made.retransmits = retransmits;
  made.acked_bytes = acked_bytes;
  made.busy = busy;
  made.rtt = rtt;
  return made;
}

TEST(LinkTally, AddsUpOverConnectionsAndTheirSuccessors) {
  LinkTally tally;
  tally.add(Each{counted(100, 1, 0, 0s, 20ms), counted(50, 0, 0, 0s, 40ms)});
  EXPECT_EQ(tally.reading().connections, 2);
  EXPECT_EQ(tally.reading().segments, 150U);
  EXPECT_EQ(tally.reading().rtt, 30ms);
  tally.add(Each{counted(110, 3, 0, 0s, 20ms), std::nullopt});  // the second has broken
  EXPECT_EQ(tally.reading().connections, 1);
  tally.add(Each{counted(110, 3, 0, 0s, 20ms), counted(7, 2, 0, 0s, 60ms)});  // and is back
  EXPECT_EQ(tally.reading().segments, 167U);
  EXPECT_EQ(tally.reading().retransmits, 5U);
  EXPECT_EQ(tally.reading().rtt, 40ms);
}

TEST(LinkTally, GoodputIsOfTheTimeInWhichSomethingWasUnderWay) {
  LinkTally tally;
  tally.add(Each{counted(1, 0, 1000, 5s, 1ms)});  // heartbeats
  EXPECT_FALSE(tally.reading().goodput_bits_per_s);
  // Two connections at the same time, for a second: 2 MB.
  tally.add(Each{counted(1, 0, 1'001'000, 6s, 1ms), counted(1, 0, 999'000, 1s, 1ms)});
  ASSERT_TRUE(tally.reading().goodput_bits_per_s);
  EXPECT_DOUBLE_EQ(*tally.reading().goodput_bits_per_s, 8 * 1'999'000.0);
  tally.add(Each{counted(1, 0, 1'001'100, 8s, 1ms), counted(1, 0, 999'000, 2s, 1ms)});
  EXPECT_DOUBLE_EQ(*tally.reading().goodput_bits_per_s, 8 * 1'999'000.0)
      << "heartbeats tell nothing";
}

TEST(LinkTally, ASuccessorThatHasCountedMoreIsCountedWhole) {
  LinkTally tally;
  tally.add(Each{counted(100, 1, 0, 0s, 20ms)});
  tally.add(Each{std::nullopt});
  tally.add(Each{counted(300, 5, 0, 0s, 20ms)});
  EXPECT_EQ(tally.reading().segments, 400U);
  EXPECT_EQ(tally.reading().retransmits, 6U);
}

TEST(LinkTally, WhereNothingStandsThereIsNoRoundTrip) {
  LinkTally tally;
  tally.add(Each{counted(9, 0, 0, 0s, 1ms)});
  tally.add(Each{std::nullopt});
  EXPECT_EQ(tally.reading().connections, 0);
  EXPECT_FALSE(tally.reading().rtt);
  EXPECT_EQ(tally.reading().segments, 9U);
}

}  // namespace
}  // namespace isthmus::this_file
