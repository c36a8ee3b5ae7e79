// SPDX-License-Identifier: Apache-2.0
// Links over sockets whose number of connections follows what TCP counts; here a test counts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "core/base/system_runtime.h"
#include "transport/links/stream_policy.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;

constexpr int kFirst = 2, kMost = 4;

/// Lossy counters of connections that bring the same each, however many there are.
class LossyCounters {
 public:
  std::optional<LinkCounters> count(WorkerId, int streams) {
    LinkCounters& counted = by_number_[streams];
    counted.segments += 2 * StreamPolicy::kSegments;
    counted.retransmits += 100;
    counted.busy += 1s;
    return counted;
  }

 private:
  std::map<int, LinkCounters> by_number_;  // of the one task that asks
};

TEST(ZmqGrowing, FramesKeepTheirOrderOverConnectionsThatAreAdded) {
  if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  SystemRuntime runtime;
  EventLog log(runtime);
  LossyCounters counters;
  const auto ends = joined_members(runtime, 2, [&](MemberOptions& options) {
    options.streams = kFirst;
    options.most_streams = kMost;
    options.window_bytes = kSmallestWindow;
    if (options.self == WorkerId(0)) {
      options.on_event = [&](const LinkEvent& event) { log.record(event); };
      options.count_tcp = [&](WorkerId peer, int n) { return counters.count(peer, n); };
    }
  });
  const std::string last = fmt::format("frames to member 1 take {} connections now", kMost);
  std::uint64_t sent = 0, taken = 0;
  // More than the connections take, so frames wait, until the last of them is in use.
  const TimePoint end = runtime.clock().now() + 60s;
  while (!log.has(LinkEvent::Kind::kAdapted, last) && runtime.clock().now() < end) {
    for (; sent < taken + 64; ++sent) {
      std::vector<std::byte> bytes(256 << 10);
      std::memcpy(bytes.data(), &sent, sizeof sent);
      ends[0]->send(WorkerId(1), std::make_shared<const std::vector<std::byte>>(std::move(bytes)));
    }
    const auto received = ends[1]->receive(end);
    ASSERT_TRUE(received);
    std::uint64_t number = 0;
    std::memcpy(&number, received->bytes->data(), sizeof number);
    ASSERT_EQ(number, taken++);
  }
  EXPECT_TRUE(log.has(LinkEvent::Kind::kAdapted, last));
  EXPECT_TRUE(
      log.wait_for(LinkEvent::Kind::kWelcomed, fmt::format("connection {}: accepted", kMost - 1)));
  for (; taken < sent; ++taken) {
    const auto received = ends[1]->receive(end);
    ASSERT_TRUE(received);
    std::uint64_t number = 0;
    std::memcpy(&number, received->bytes->data(), sizeof number);
    ASSERT_EQ(number, taken);
  }
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
