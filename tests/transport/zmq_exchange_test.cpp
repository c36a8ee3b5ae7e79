// SPDX-License-Identifier: Apache-2.0
// The exchange over ZeroMQ on loopback: the same bits, bytes and errors as in one process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>

#include "core/base/system_runtime.h"
#include "transport/exchange/run_in_process.h"
#include "transport/exchange_case.h"
#include "transport/naive_mean.h"
#include "zmq_members.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing_support::Case;
using testing_support::contribution_of;
using testing_support::naive_mean;
using testing_support::name_of;
using testing_support::result_of;

void run_over_zmq(int members, const std::function<void(WorkerContext&)>& body,
                  const PeerExchangeOptions& options = {}) {
  SystemRuntime runtime;
  std::vector<std::unique_ptr<Transport>> ends;
  for (auto& end : testing_support::joined_members(runtime, members))
    ends.push_back(std::move(end));
  run_over(runtime, ends, options, body);
}

class ZmqExchangeTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  }
};

TEST_P(ZmqExchangeTest, EveryMemberGetsTheBitsAndBytesOfARunInOneProcess) {
  const auto& [members, kind, name] = GetParam();
  const std::shared_ptr<const Codec> codec = make_codec(name);
  const std::vector<std::size_t> sizes = {1, 20001, 900000};
  std::vector<std::vector<float>> expected;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    expected.push_back(naive_mean(*codec, members, sizes[i], kind,
                                  {FragmentId(static_cast<int>(i)), StepIndex(5)}));
  }
  const auto body = [&, kind = kind](WorkerContext& context) {
    std::vector<Ticket> tickets;
    for (std::size_t i = 0; i < sizes.size(); ++i) {  // all rounds under way at once
      tickets.push_back(context.exchange.begin(contribution_of(
          codec, context.rank, sizes[i], {FragmentId(static_cast<int>(i)), StepIndex(5)}, kind)));
    }
    for (std::size_t i = sizes.size(); i-- > 0;) {
      const auto result = context.exchange.wait(tickets[i], 120s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
      EXPECT_EQ(result_of(*codec, *result), expected[i])
          << "worker " << context.rank.value() << " n " << sizes[i];
    }
  };
  std::atomic<std::uint64_t> payload[2] = {0, 0};
  run_in_process(members, [&](WorkerContext& context) {
    body(context);
    payload[0] += context.exchange.bytes().payload;
  });
  run_over_zmq(members, [&](WorkerContext& context) {
    body(context);
    payload[1] += context.exchange.bytes().payload;
  });
  EXPECT_EQ(payload[0], payload[1]);
}

TEST(ZmqGroups, GiveTheBitsOfTheNaiveLoop) {
  if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  const std::shared_ptr<const Codec> codec = make_codec("int4:64");
  const std::vector<std::uint32_t> groups = {0, 1, 0, 1, 2};
  const std::vector<WorkerId> all = {WorkerId(0), WorkerId(1), WorkerId(2), WorkerId(3),
                                     WorkerId(4)};
  const SyncId id{FragmentId(0), StepIndex(5)};
  const std::vector<float> expected =
      testing_support::naive_mean_in_groups(*codec, all, groups, 900000, id);
  run_over_zmq(
      5,
      [&](WorkerContext& context) {
        const auto result =
            context.exchange.wait(context.exchange.begin(contribution_of(
                                      codec, context.rank, 900000, id, ReductionKind::kReduce)),
                                  120s);
        ASSERT_TRUE(result.has_value()) << result.error().what;
        EXPECT_EQ(result->values, expected) << "worker " << context.rank.value();
      },
      PeerExchangeOptions{.groups = groups});
}

// Among three of five, one of whom owns most.
TEST(ZmqShares, GiveTheBitsOfTheNaiveLoop) {
  if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  const std::shared_ptr<const Codec> codec = make_codec("int4:64:rounding=stochastic");
  const SyncId id{FragmentId(0), StepIndex(5)};
  const std::vector<float> expected = naive_mean(*codec, 5, 900000, ReductionKind::kReduce, id);
  run_over_zmq(
      5,
      [&](WorkerContext& context) {
        const auto result =
            context.exchange.wait(context.exchange.begin(contribution_of(
                                      codec, context.rank, 900000, id, ReductionKind::kReduce)),
                                  120s);
        ASSERT_TRUE(result.has_value()) << result.error().what;
        EXPECT_EQ(result->values, expected) << "worker " << context.rank.value();
      },
      PeerExchangeOptions{.shares = {0, 3, 0, 100, 7}});
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int members : {2, 3, 4}) {
    for (const char* codec :
         {"fp32", "bf16", "int8", "int4:64:rounding=stochastic", "1bit", "topk"}) {
      all.push_back({members, ReductionKind::kReduce, codec});
      all.push_back({members, ReductionKind::kGather, codec});
    }
    all.push_back({members, ReductionKind::kCollect, "fp32"});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(MembersKindsCodecs, ZmqExchangeTest, ::testing::ValuesIn(cases()),
                         name_of);

class ZmqExchange : public ::testing::Test {
 protected:
  void SetUp() override {
    if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  }
};

/// What this process has taken from the allocator and not given back. Of an allocator that does not
/// tell (that of AddressSanitizer), 0.
std::size_t bytes_in_use() {
  const struct mallinfo2 all = ::mallinfo2();
  return all.uordblks + all.hblkhd;
}

// Of rounds of 16 MiB a member nothing is left when their results are, without a heartbeat, but for
// the last MiB of means on each link: before, frames that were not acknowledged yet kept the whole
// vector that they had been sent from.
TEST_F(ZmqExchange, WhatARoundWasSentFromIsFreedWhenItEnds) {
  constexpr std::size_t kValues = std::size_t{4} << 20;
  constexpr std::size_t kLeft = std::size_t{12} << 20;
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  for (const int members : {2, 4}) {
    SystemRuntime runtime;
    std::vector<std::unique_ptr<Transport>> ends;
    const auto heartbeats_are_rare = [](MemberOptions& options) {
      options.heartbeat = 5min;
      options.dead_after = 30min;
    };
    for (auto& end : testing_support::joined_members(runtime, members, heartbeats_are_rare)) {
      ends.push_back(std::move(end));
    }
    for (int m = 0; m < members; ++m) (void)testing_support::test_vector(WorkerId(m), kValues);
    const std::size_t before = bytes_in_use();
    run_over(runtime, ends, {}, [&](WorkerContext& context) {
      for (int round = 1; round <= 2; ++round) {
        const auto result =
            context.exchange.wait(context.exchange.begin(contribution_of(
                                      codec, context.rank, kValues,
                                      {FragmentId(0), StepIndex(round)}, ReductionKind::kAuto)),
                                  120s);
        ASSERT_TRUE(result.has_value()) << result.error().what;
      }
      const TimePoint patience = runtime.clock().now() + 60s;
      while (bytes_in_use() > before + kLeft && runtime.clock().now() < patience) {
        runtime.sleep_until(runtime.clock().now() + 1ms);
      }
      EXPECT_LE(bytes_in_use(), before + kLeft) << members << " members";
    });
  }
}

TEST_F(ZmqExchange, WhatWasReceivedOutlivesTheLinks) {
  SystemRuntime runtime;
  auto ends = testing_support::joined_members(runtime, 2);
  for (const std::size_t bytes : {100u, 6000u, 300'000u}) {  // copied, kept with others, kept
    const auto frame = std::make_shared<const std::vector<std::byte>>(bytes, std::byte{9});
    ends[0]->send(WorkerId(1), frame);
  }
  std::vector<FrameBytes> received;
  while (received.size() < 3) {
    auto next = ends[1]->receive(runtime.clock().now() + 60s);
    ASSERT_TRUE(next.has_value()) << next.error().what;
    received.push_back(std::move(next->bytes));
  }
  ends.clear();
  for (const FrameBytes& each : received) {
    EXPECT_EQ(std::ranges::count(*each, std::byte{9}), static_cast<std::ptrdiff_t>(each->size()));
  }
  EXPECT_EQ(received.back()->size(), 300'000U);
}

TEST_F(ZmqExchange, ManyRoundsInARow) {
  const std::shared_ptr<const Codec> codec = make_codec("int8");
  std::vector<std::vector<float>> expected;
  constexpr int kRounds = 60;
  for (int step = 1; step <= kRounds; ++step) {
    expected.push_back(
        naive_mean(*codec, 3, 30000, ReductionKind::kReduce, {FragmentId(0), StepIndex(step)}));
  }
  run_over_zmq(3, [&](WorkerContext& context) {
    for (int step = 1; step <= kRounds; ++step) {
      Contribution mine = contribution_of(codec, context.rank, 30000,
                                          {FragmentId(0), StepIndex(step)}, ReductionKind::kReduce);
      mine.commit = step % 16 == 0 || step == kRounds;
      const auto result = context.exchange.wait(context.exchange.begin(std::move(mine)), 60s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
      ASSERT_EQ(result->values, expected[static_cast<std::size_t>(step - 1)]) << "step " << step;
    }
  });
}

TEST_F(ZmqExchange, AMemberThatFailsInMidRoundIsNamedToTheOthers) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  std::atomic<int> told = 0;
  const auto run = [&] {
    run_over_zmq(4, [&](WorkerContext& context) {
      const auto begin = [&](int step) {
        return context.exchange.begin(contribution_of(codec, context.rank, 2000000,
                                                      {FragmentId(0), StepIndex(step)},
                                                      ReductionKind::kReduce));
      };
      const auto whole = context.exchange.wait(begin(1), 120s);
      ASSERT_TRUE(whole.has_value()) << whole.error().what;
      if (context.rank == WorkerId(1)) throw std::runtime_error("disk on fire");
      const auto result = context.exchange.wait(begin(2), 120s);
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().kind, ExchangeError::Kind::kPeerLost) << result.error().what;
      EXPECT_EQ(result.error().peer, WorkerId(1));
      ++told;
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
  EXPECT_EQ(told, 3);
}

TEST_F(ZmqExchange, UnlikeCodecsAreNamed) {
  const std::shared_ptr<const Codec> fp32 = make_codec("fp32");
  const std::shared_ptr<const Codec> bf16 = make_codec("bf16");
  run_over_zmq(2, [&](WorkerContext& context) {
    const Ticket ticket = context.exchange.begin(
        contribution_of(context.rank == WorkerId(0) ? fp32 : bf16, context.rank, 100,
                        {FragmentId(0), StepIndex(1)}, ReductionKind::kGather));
    const auto result = context.exchange.wait(ticket, 60s);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().kind, ExchangeError::Kind::kDiverged);
    EXPECT_THAT(result.error().what, ::testing::HasSubstr("another layout"));
  });
}

}  // namespace
}  // namespace isthmus::this_file
