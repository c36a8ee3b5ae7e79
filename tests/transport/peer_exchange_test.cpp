// SPDX-License-Identifier: Apache-2.0
// The exchange in one process: the mean's bits, bytes, commits, errors.
#include "transport/exchange/peer_exchange.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "core/base/rng.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "transport/exchange/run_in_process.h"
#include "transport/exchange_case.h"
#include "transport/naive_mean.h"
#include "transport/wire/frame.h"
#include "transport/wire/in_process_transport.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing_support::Case;
using testing_support::contribution_of;
using testing_support::naive_mean;
using testing_support::name_of;
using testing_support::result_of;
using testing_support::test_vector;

// Runs of unlike keys draw unlike places; the owners' encoding of the mean draws those of the
// contributions, or most of it would be zero.
TEST(RunKey, IsThatOfTheContributionsAndOfTheMeans) {
  const std::shared_ptr<const Codec> codec = make_codec("randk:512");
  const SyncId id{FragmentId(0), StepIndex(1)};
  std::vector<std::size_t> places[2];
  for (const std::uint64_t run_key : {0u, 77u}) {
    run_in_process(3, PeerExchangeOptions{.run_key = run_key}, [&](WorkerContext& context) {
      Contribution mine = contribution_of(codec, context.rank, 4096, id, ReductionKind::kReduce);
      mine.encoded = encode(*codec, std::vector<float>(4096, 1.0f), context.exchange.key(id));
      const auto mean = context.exchange.wait(context.exchange.begin(std::move(mine)), 60s);
      ASSERT_TRUE(mean.has_value());
      if (context.rank != WorkerId(0)) return;
      for (std::size_t i = 0; i < 4096; ++i) {
        if (mean->values[i] != 0) places[run_key == 0 ? 0 : 1].push_back(i);
      }
    });
  }
  EXPECT_EQ(places[0].size(), 512u);
  EXPECT_EQ(places[1].size(), 512u);
  EXPECT_NE(places[0], places[1]);
}

class ExchangeTest : public ::testing::TestWithParam<Case> {};

TEST_P(ExchangeTest, EveryMemberGetsTheBitsOfTheNaiveMean) {
  const auto& [members, kind, name] = GetParam();
  const std::shared_ptr<const Codec> codec = make_codec(name);
  for (const std::size_t n : {1u, 4096u, 20001u, 300000u}) {
    const SyncId id{FragmentId(2), StepIndex(5)};
    const std::vector<float> expected = naive_mean(*codec, members, n, kind, id);
    run_in_process(members, [&, kind = kind](WorkerContext& context) {
      const Ticket ticket =
          context.exchange.begin(contribution_of(codec, context.rank, n, id, kind));
      const auto result = context.exchange.wait(ticket, 60s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
      EXPECT_EQ(result_of(*codec, *result), expected)
          << "worker " << context.rank.value() << " n " << n;
      EXPECT_EQ(static_cast<int>(result->contributors.size()), context.workers);
    });
  }
}

// Oracle 19: bytes on the wire follow the formula of the strategy, headers stay within 1 %.
TEST_P(ExchangeTest, BytesFollowTheFormula) {
  const auto& [members, kind, name] = GetParam();
  const std::shared_ptr<const Codec> codec = make_codec(name);
  const std::size_t n = static_cast<std::size_t>(members) * 40 * kTileValues;
  const std::uint64_t whole = encoded_bytes(*codec, n);
  const auto others = static_cast<std::uint64_t>(members) - 1;
  const std::uint64_t payload = kind != ReductionKind::kReduce
                                    ? others * whole
                                    : 2 * others * whole / static_cast<std::uint64_t>(members);
  run_in_process(members, [&, kind = kind, members = members](WorkerContext& context) {
    const SyncId id{FragmentId(0), StepIndex(1)};
    const Ticket ticket = context.exchange.begin(contribution_of(codec, context.rank, n, id, kind));
    const auto result = context.exchange.wait(ticket, 60s);
    ASSERT_TRUE(result.has_value()) << result.error().what;
    EXPECT_EQ(result->payload_bytes, payload);
    EXPECT_EQ(context.exchange.bytes().payload, payload);
    EXPECT_EQ(context.exchange.bytes().wire, result->wire_bytes);
    EXPECT_GE(result->wire_bytes, payload);
    // A part of a very sparse code is a few kilobytes, where a frame's header shows.
    const double header_share = whole / static_cast<std::uint64_t>(members) < 10'000 ? 0.05 : 0.01;
    EXPECT_LE(static_cast<double>(result->wire_bytes),
              static_cast<double>(payload) * (1 + header_share) + (others == 0 ? 1 : 0));
  });
}

/// Every codec among two and three members, who take all paths there are; four codecs of different
/// kinds among the other numbers.
std::vector<Case> all_cases() {
  const std::vector<std::string> few = {"fp32", "int8", "1bit", "topk"};
  std::vector<Case> cases;
  for (const int members : {1, 2, 3, 4, 5, 8}) {
    for (const ReductionKind kind :
         {ReductionKind::kReduce, ReductionKind::kGather, ReductionKind::kCollect}) {
      for (const CodecInfo& codec : codecs()) {
        if (members == 2 || members == 3 || std::ranges::find(few, codec.name) != few.end()) {
          cases.push_back({members, kind, codec.name});
        }
      }
      cases.push_back({members, kind, "int4:64:rounding=stochastic"});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(MembersKindsCodecs, ExchangeTest, ::testing::ValuesIn(all_cases()),
                         name_of);

TEST(PeerExchange, KeepsSeveralRoundsInFlightAndTakesThemInAnyOrder) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  constexpr int kRounds = 7;
  run_in_process(4, [&](WorkerContext& context) {
    std::vector<Ticket> tickets;
    for (int p = 0; p < kRounds; ++p) {
      tickets.push_back(context.exchange.begin(
          contribution_of(codec, context.rank, 5000 + static_cast<std::size_t>(p),
                          {FragmentId(p), StepIndex(9)}, ReductionKind::kReduce)));
    }
    for (int p = kRounds - 1; p >= 0; --p) {
      const auto n = 5000 + static_cast<std::size_t>(p);
      const auto result = context.exchange.wait(tickets[static_cast<std::size_t>(p)], 60s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
      EXPECT_EQ(result->values, naive_mean(*codec, 4, n, ReductionKind::kReduce));
    }
  });
}

TEST(PeerExchange, WeightZeroTakesWithoutGiving) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  for (const ReductionKind kind : {ReductionKind::kReduce, ReductionKind::kGather}) {
    run_in_process(3, [&](WorkerContext& context) {
      Contribution mine =
          contribution_of(codec, context.rank, 30000, {FragmentId(0), StepIndex(1)}, kind);
      mine.weight = context.rank == WorkerId(1) ? 0 : 2;
      const auto result = context.exchange.wait(context.exchange.begin(std::move(mine)), 60s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
      EXPECT_EQ(result->contributors, (std::vector<WorkerId>{WorkerId(0), WorkerId(2)}));
      const std::vector<float> a = test_vector(WorkerId(0), 30000);
      const std::vector<float> c = test_vector(WorkerId(2), 30000);
      for (std::size_t i = 0; i < a.size(); i += 1000) {
        EXPECT_EQ(result->values[i], (a[i] + c[i]) / 2);
      }
    });
  }
}

// Bytes that are no vector: each member's own, in member order, without those of weight 0.
TEST(PeerExchange, CollectHandsOutEveryContributorsBytesUnreduced) {
  const auto bytes_of = [](WorkerId rank, std::size_t n) {
    std::vector<std::byte> bytes(n);
    for (std::size_t i = 0; i < n; ++i) {
      bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(rank.value()) * 31);
    }
    return bytes;
  };
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{1500000}}) {
    run_in_process(4, [&](WorkerContext& context) {
      const double weight = context.rank == WorkerId(2) && n > 0 ? 0 : 1;
      const auto result =
          context.exchange.wait(context.exchange.begin({.id = {FragmentId(0), StepIndex(1)},
                                                        .encoded = {n, bytes_of(context.rank, n)},
                                                        .codec = plain_bytes(),
                                                        .weight = weight,
                                                        .kind = ReductionKind::kCollect,
                                                        .commit = true}),
                                60s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
      EXPECT_TRUE(result->values.empty());
      ASSERT_EQ(result->contributors.size(), n > 0 ? 3u : 4u);
      ASSERT_EQ(result->contributions.size(), result->contributors.size());
      for (std::size_t k = 0; k < result->contributors.size(); ++k) {
        EXPECT_EQ(result->contributions[k].values, n);
        EXPECT_EQ(result->contributions[k].bytes, bytes_of(result->contributors[k], n));
      }
      EXPECT_EQ(result->payload_bytes, weight > 0 ? 3 * n : 0);
    });
  }
}

TEST(PeerExchange, UncommittedRoundsAreCoveredByTheNextThatCommits) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  run_in_process(3, [&](WorkerContext& context) {
    for (int step = 1; step <= 40; ++step) {
      Contribution mine = contribution_of(codec, context.rank, 9000,
                                          {FragmentId(0), StepIndex(step)}, ReductionKind::kReduce);
      mine.commit = step % 16 == 0;
      const auto result = context.exchange.wait(context.exchange.begin(std::move(mine)), 60s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
    }
    // An empty round commits what is left, as a method does at its last step.
    Contribution last{.id = {FragmentId(1), StepIndex(40)}, .encoded = {}, .codec = codec};
    const auto result = context.exchange.wait(context.exchange.begin(std::move(last)), 60s);
    ASSERT_TRUE(result.has_value()) << result.error().what;
    EXPECT_TRUE(result->values.empty());
  });
}

TEST(PeerExchange, PatienceEndsWithWhoIsMissing) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  run_in_process(3, [&](WorkerContext& context) {
    if (context.rank == WorkerId(2)) {
      return;  // leaves in order without ever contributing
    }
    const Ticket ticket = context.exchange.begin(contribution_of(
        codec, context.rank, 100, {FragmentId(4), StepIndex(8)}, ReductionKind::kGather));
    EXPECT_FALSE(context.exchange.poll(ticket));
    const auto result = context.exchange.wait(ticket, 20ms);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().kind, ExchangeError::Kind::kDeadlineExceeded);
    EXPECT_EQ(result.error().what,
              "no result within 0.0 s: fragment 4 of step 8 waits for data from worker 2");
  });
}

TEST(PeerExchange, WhoIsWaitedForTooLongIsLeftOut) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const SyncId id{FragmentId(0), StepIndex(1)};
  std::atomic<int> through = 0;
  run_in_process(3, PeerExchangeOptions{.elastic = true, .straggler = 50ms},
                 [&](WorkerContext& context) {
                   if (context.rank == WorkerId(2)) {
                     for (int seen = 0; (seen = through) < 2;) through.wait(seen);
                   }
                   const Ticket ticket = context.exchange.begin(
                       contribution_of(codec, context.rank, 30000, id, ReductionKind::kReduce));
                   const auto result = context.exchange.wait(ticket, 60s);
                   if (context.rank == WorkerId(2)) {
                     EXPECT_EQ(result.error().kind, ExchangeError::Kind::kEvicted);
                     return;
                   }
                   ++through;
                   through.notify_all();
                   ASSERT_TRUE(result.has_value()) << result.error().what;
                   EXPECT_EQ(result->contributors.size(), 2u);
                 });
}

// A process that hangs leaves the question untaken, by which its links know it.
TEST(PeerExchange, WhoIsWaitedForIsAskedAgainAndAgain) {
  SystemRuntime runtime;
  const auto ends = make_in_process_transports(runtime, 2);
  PeerExchange exchange(*ends[0], runtime, {.retry_interval = kNothingIsLost, .asks_after = 100ms});
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const Ticket ticket = exchange.begin(contribution_of(
      codec, WorkerId(0), 4096, {FragmentId(0), StepIndex(1)}, ReductionKind::kReduce));
  EXPECT_FALSE(exchange.wait(ticket, 350ms));
  int probes = 0;
  while (const auto received = ends[1]->receive(runtime.clock().now())) {
    probes += parse_frame(*received->bytes)->header.kind == FrameKind::kProbe ? 1 : 0;
  }
  EXPECT_GE(probes, 2);
  EXPECT_LE(probes, 3);
}

TEST(PeerExchange, ALostPeerEndsTheWaitAndTheCauseIsWhatTheCallerSees) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  std::atomic<int> lost = 0;
  const auto run = [&] {
    run_in_process(4, [&](WorkerContext& context) {
      if (context.rank == WorkerId(1)) {
        throw std::runtime_error("disk on fire");
      }
      const Ticket ticket = context.exchange.begin(contribution_of(
          codec, context.rank, 50000, {FragmentId(0), StepIndex(1)}, ReductionKind::kReduce));
      const auto result = context.exchange.wait(ticket, 60s);
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().kind, ExchangeError::Kind::kPeerLost);
      EXPECT_EQ(result.error().peer, WorkerId(1));
      ++lost;
    });
  };
  EXPECT_THROW(
      {
        try {
          run();
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "disk on fire");
          throw;
        }
      },
      std::runtime_error);
  EXPECT_EQ(lost, 3);
}

TEST(PeerExchange, UnlikeConfigurationsAreNamed) {
  const std::shared_ptr<const Codec> fp32 = make_codec("fp32");
  const std::shared_ptr<const Codec> bf16 = make_codec("bf16");
  run_in_process(2, [&](WorkerContext& context) {
    const Ticket ticket = context.exchange.begin(
        contribution_of(context.rank == WorkerId(0) ? fp32 : bf16, context.rank, 100,
                        {FragmentId(0), StepIndex(1)}, ReductionKind::kGather));
    const auto result = context.exchange.wait(ticket, 60s);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().kind, ExchangeError::Kind::kDiverged);
    EXPECT_THAT(result.error().what, ::testing::HasSubstr("another layout"));
  });
}

TEST(RunInProcess, RefusesNoWorkers) {
  EXPECT_THROW(run_in_process(0, [](WorkerContext&) {}), ConfigError);
}

}  // namespace
}  // namespace isthmus::this_file
