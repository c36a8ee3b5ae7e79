// SPDX-License-Identifier: Apache-2.0
// Connections between members end in the middle of an exchange, and a member that takes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "transport/exchange/run_in_process.h"
#include "transport/naive_mean.h"
#include "valve.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// In the middle of rounds one of four connections ends, again and again; its frames go another
// time.
TEST(ZmqBreaks, AConnectionThatBreaksCostsNoRoundAndChangesNoBit) {
  if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  SystemRuntime runtime;
  constexpr int kRounds = 30, kCuts = 12;
  EventLog log(runtime);
  auto joined = bind_members(runtime, 2, [&](MemberOptions& options) {
    options.streams = 4;
    if (options.self == WorkerId(0)) {
      options.on_event = [&](const LinkEvent& event) { log.record(event); };
    }
  });
  std::vector<std::string> endpoints = endpoints_of(joined);
  Valve between(runtime, endpoints[1]);
  joined[1]->join(endpoints);
  endpoints[1] = between.endpoint();
  joined[0]->join(endpoints);
  for (const auto& end : joined) ASSERT_TRUE(end->await_members(runtime.clock().now() + 60s));
  std::vector<std::unique_ptr<Transport>> ends;
  for (auto& end : joined) ends.push_back(std::move(end));
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  constexpr std::size_t kValues = 1 << 20;
  const std::vector<float> expected =
      testing_support::naive_mean(*codec, 2, kValues, ReductionKind::kReduce);
  run_over(runtime, ends, PeerExchangeOptions{}, [&](WorkerContext& context) {
    for (int step = 0; step < kRounds; ++step) {
      const Ticket ticket = context.exchange.begin(testing_support::contribution_of(
          codec, context.rank, kValues, {FragmentId(0), StepIndex(step)}, ReductionKind::kReduce));
      if (context.rank == WorkerId(0) && step < kCuts) between.cut_one();
      const auto result = context.exchange.wait(ticket, 120s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
      EXPECT_EQ(result->values, expected) << "round " << step;
    }
  });
  EXPECT_EQ(between.cut(), kCuts);
  EXPECT_GE(log.count("disconnected"), kCuts / 2);  // some may end before they stood again
  EXPECT_FALSE(log.has(LinkEvent::Kind::kLost, ""));
  ends.clear();  // before what they dial
}

FrameBytes some_frame() { return std::make_shared<const std::vector<std::byte>>(100'000); }

// Its links are a task of their own, which beats on; so does one that is only slow.
TEST(ZmqBreaks, WhoTakesNothingIsLostThoughItIsHeard) {
  if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  SystemRuntime runtime;
  const auto in = [&](Duration time) { return runtime.clock().now() + time; };
  const auto ends = joined_members(runtime, 2, [](MemberOptions& options) {
    options.heartbeat = 100ms;
    options.stuck_after = 10s;  // nine more than it is made to wait
  });
  for (int taken = 0; taken < 6; ++taken) {
    ends[0]->send(WorkerId(1), some_frame());
    const auto nothing = ends[0]->receive(in(1s));
    ASSERT_FALSE(nothing);
    ASSERT_EQ(nothing.error().kind, TransportError::Kind::kDeadlineExceeded)
        << nothing.error().what;
    ASSERT_TRUE(ends[1]->receive(in(10s)));
  }
  ends[0]->send(WorkerId(1), some_frame());
  const auto news = ends[0]->receive(in(60s));
  ASSERT_FALSE(news);
  EXPECT_EQ(news.error().kind, TransportError::Kind::kPeerLost);
  EXPECT_THAT(news.error().what, HasSubstr("its process hangs"));
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
