// SPDX-License-Identifier: Apache-2.0
// Members measure their links over real sockets of this machine: what they find agrees, and TCP's
// counters are read. How fast loopback is, is not looked at.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "transport/links/probe/link_survey.h"
#include "zmq_members.h"

namespace isthmus::this_file {
namespace {

using ::testing::ElementsAre;

TEST(ZmqSurvey, ThreeMembersFindTheSameAndCountWhatTcpSent) {
  SystemRuntime runtime;
  auto members = isthmus::testing_support::joined_members(runtime, 3);
  std::vector<Survey> found(3);
  std::vector<std::unique_ptr<Task>> tasks;
  for (std::size_t m = 0; m < 3; ++m) {
    tasks.push_back(runtime.spawn("member", [&, m] {
      SurveyOptions options;
      options.plan = {.budget = std::chrono::milliseconds(300), .streams = 2};
      options.name = std::string(1, static_cast<char>('a' + m));
      options.gauge = dynamic_cast<LinkGauge*>(members[m].get());
      ASSERT_NE(options.gauge, nullptr);
      found[m] = survey_links(*members[m], runtime, options);
    }));
  }
  for (const auto& task : tasks) task->join();
  for (const Survey& each : found) {
    EXPECT_THAT(each.names, ElementsAre("a", "b", "c"));
    EXPECT_EQ(each.pairs, found[0].pairs);
  }
  ASSERT_EQ(found[0].pairs.size(), 3u);
  for (const PairMeasurement& pair : found[0].pairs) {
    for (const DirectionMeasurement& direction : {pair.up, pair.down}) {
      EXPECT_GT(direction.bits_per_s, 0);
      EXPECT_LE(direction.streams, 2u);
      if (!direction.retransmits) continue;  // this system does not tell
      EXPECT_GT(direction.retransmits->segments, 0u);
      EXPECT_GE(direction.retransmits->segments * 65'536, direction.bytes)
          << "a segment holds at most 64 KiB, and every byte went in one";
      EXPECT_NE(direction.congestion, "");
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
