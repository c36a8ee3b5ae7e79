// SPDX-License-Identifier: Apache-2.0
// A member's bound on what it sends in all.
#include "transport/links/send_budget.h"

#include <gtest/gtest.h>

#include "link_net.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace link_test;

TEST(SendBudget, LetsTheRateThroughAndNoMore) {
  SendBudget budget(8e6);  // a byte a microsecond
  TimePoint now{};
  std::size_t sent = 0;
  for (; now < TimePoint(10s); now += 7ms) {
    for (; budget.open(now); sent += 1000) budget.spend(now, 1000);
  }
  EXPECT_LE(sent, 10'000'000u + 20'000 + 1000);  // what it holds, and the frame that emptied it
  EXPECT_GE(sent, 10'000'000u - 7000);
}

TEST(SendBudget, KeepsLittleOfWhatWasNotUsed) {
  SendBudget budget(8e6);
  std::size_t sent = 0;
  for (; budget.open(TimePoint(1h)); sent += 1000) budget.spend(TimePoint(1h), 1000);
  EXPECT_LE(sent, 22'000u);
}

TEST(SendBudget, OfNoneIsAlwaysOpen) {
  SendBudget budget(0);
  budget.spend(TimePoint{}, std::size_t{1} << 40);
  EXPECT_TRUE(budget.open(TimePoint{}));
}

TEST(SendBudget, ADebtIsPaidAtTheNewRate) {
  SendBudget budget(8e6);
  const TimePoint begin(1h);
  budget.spend(begin, 1'000'000);  // a second's worth, less what it holds
  const Duration owed = budget.opens() - begin;
  EXPECT_EQ(owed, 980ms);
  budget.set_rate(begin + owed / 2, 80e6);
  EXPECT_EQ(budget.opens(), begin + owed / 2 + owed / 20);
  budget.set_rate(begin + owed / 2, 4e6);
  EXPECT_EQ(budget.opens(), begin + owed / 2 + owed);
  budget.set_rate(begin + owed, 0);
  EXPECT_TRUE(budget.open(begin + owed));
  budget.set_rate(begin + owed, 8e6);
  EXPECT_LE(budget.opens(), begin + owed);  // nothing is owed for a time without a bound
}

TEST(LinkEngineBudget, PeersShareIt) {
  constexpr std::uint32_t kFrames = 20;
  constexpr std::size_t kBytes = 100'000;
  Net net(3, [](MemberOptions& options) {
    if (options.self == WorkerId(0))
      options.send_bits_per_s = [] { return 8e6; };  // ten frames a second
  });
  net.settle();
  net.pass(1ms);
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    for (const int peer : {1, 2}) net.engine(0).submit(WorkerId(peer), frame_of(i, kBytes));
  }
  net.settle();
  const TimePoint begin = net.now;
  while (net.now - begin < 10s && net.node(2).delivered.size() < kFrames) {
    net.pass(10ms);
    const std::size_t one = net.node(1).delivered.size(), other = net.node(2).delivered.size();
    const double seconds = std::chrono::duration<double>(net.now - begin).count();
    EXPECT_LE(static_cast<double>(one + other) * kBytes, (seconds + 0.02) * 1e6 + kBytes);
    EXPECT_LE(one > other ? one - other : other - one, 1u) << seconds;
    for (const int peer : {1, 2}) net.node(peer).take_all();
  }
  EXPECT_EQ(net.node(1).delivered, up_to(kFrames));
  EXPECT_EQ(net.node(2).delivered, up_to(kFrames));
  EXPECT_GT(net.now - begin, 3800ms);  // less what it holds, and the last frame is paid for later
  EXPECT_LT(net.now - begin, 4100ms);
  // Who has no bound does not wait.
  for (std::uint32_t i = 0; i < kFrames; ++i)
    net.engine(1).submit(WorkerId(0), frame_of(i, kBytes));
  net.settle();
  EXPECT_EQ(net.node(0).delivered, up_to(kFrames));
}

TEST(LinkEngineBudget, SaysWhenItGoesOn) {
  Net net(2, [](MemberOptions& options) { options.send_bits_per_s = [] { return 8e6; }; });
  net.settle();
  net.pass(1ms);
  const TimePoint heartbeat = net.engine(0).next_tick();
  for (std::uint32_t i = 0; i < 3; ++i) net.engine(0).submit(WorkerId(1), frame_of(i, 100'000));
  EXPECT_LT(net.engine(0).next_tick(), heartbeat);
  EXPECT_LE(net.engine(0).next_tick() - net.now, 101ms);
  EXPECT_GE(net.engine(0).next_tick() - net.now, 79ms);
}

TEST(LinkEngineBudget, FollowsItsRateFromOneHeartbeatToTheNext) {
  double rate = 8e5;  // a frame a second
  Net net(2, [&rate](MemberOptions& options) {
    if (options.self == WorkerId(0)) options.send_bits_per_s = [&rate] { return rate; };
  });
  net.settle();
  net.pass(1ms);
  constexpr std::uint32_t kFrames = 300;
  for (std::uint32_t i = 0; i < kFrames; ++i)
    net.engine(0).submit(WorkerId(1), frame_of(i, 100'000));
  const auto sent_within = [&net](Duration time) {
    const std::size_t before = net.node(1).delivered.size();
    for (const TimePoint begin = net.now; net.now - begin < time;) {
      net.pass(10ms);
      net.node(1).take_all();
    }
    return net.node(1).delivered.size() - before;
  };
  const std::size_t slow = sent_within(10s);
  EXPECT_GE(slow, 9u);
  EXPECT_LE(slow, 11u);
  rate = 8e6;
  const std::size_t fast = sent_within(11s);  // one of them until the heartbeat
  EXPECT_GE(fast, 99u);
  EXPECT_LE(fast, 111u);
  rate = 0;
  (void)sent_within(2s);
  EXPECT_EQ(net.node(1).delivered, up_to(kFrames));
}

}  // namespace
}  // namespace isthmus::this_file
