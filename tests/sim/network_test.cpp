// SPDX-License-Identifier: Apache-2.0
// Endpoints over simulated links: times of arrival, traffic, events, and each class of fault.
#include "sim/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "isthmus/errors.h"
#include "sim/topology.h"

namespace isthmus {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr std::size_t kFrameBytes = 1000;
// A frame of 1000 bytes leaves in 1 ms and arrives 10 ms later.
constexpr DirectedLink kLink{.bits_per_s = 8'000'000, .one_way = milliseconds(10)};
constexpr Duration kSecondFrameArrives = milliseconds(12);

FrameBytes frame_of(std::uint8_t tag) {
  return std::make_shared<std::vector<std::byte>>(kFrameBytes, std::byte{tag});
}

class RecordingSink final : public EventSink {
 public:
  void record(const Event& event) override { events.push_back(event); }
  std::vector<Event> events;
};

/// What one receiver saw, in order: the frame's tag, or -1 - peer for the news that a peer is lost.
struct Seen {
  int what = 0;
  TimePoint when;
  bool intact = true;
};

std::vector<Seen> receive_until(Transport& transport, Runtime& runtime, TimePoint deadline) {
  std::vector<Seen> seen;
  while (true) {
    const auto received = transport.receive(deadline);
    if (!received && received.error().kind != TransportError::Kind::kPeerLost) return seen;
    Seen item{.what = 0, .when = runtime.clock().now()};
    if (received) {
      item.what = std::to_integer<int>(received->bytes->back());
      item.intact = *received->bytes == *frame_of(static_cast<std::uint8_t>(item.what));
    } else {
      item.what = -1 - received.error().peer.value();
    }
    seen.push_back(item);
  }
}

std::vector<int> what_of(const std::vector<Seen>& seen) {
  std::vector<int> what;
  what.reserve(seen.size());
  for (const Seen& item : seen) what.push_back(item.what);
  return what;
}

/// Runs `body` in a world of `members` endpoints and returns what the faults counted.
using Body = std::function<void(std::vector<std::unique_ptr<Transport>>&, SimWorld&)>;
FaultCounts run(int members, NetworkOptions options, const Body& body, std::uint64_t seed = 1) {
  SimWorld world(seed);
  SimNetwork network(world, members, uniform_links(members, kLink), std::move(options));
  world.run([&] {
    std::vector<std::unique_ptr<Transport>> ends = network.endpoints();
    body(ends, world);
  });
  return network.fault_counts();
}

/// Rank 0 sends `frames` frames to rank 1 at once; what arrives there.
std::vector<Seen> send_burst(int frames, const FaultPlan& faults, FaultCounts* counts = nullptr,
                             std::uint64_t seed = 1) {
  std::vector<Seen> seen;
  NetworkOptions options;
  options.faults = faults;
  const FaultCounts counted = run(
      2, std::move(options),
      [&](auto& ends, SimWorld& world) {
        for (int i = 0; i < frames; ++i) {
          ends[0]->send(Rank(1), frame_of(static_cast<std::uint8_t>(i % 251)));
        }
        seen = receive_until(*ends[1], world, TimePoint(seconds(100)));
      },
      seed);
  if (counts != nullptr) *counts = counted;
  return seen;
}

TEST(SimNetwork, FramesArriveWhenTheLinkSays) {
  const std::vector<Seen> seen = send_burst(2, {});
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].when, TimePoint(milliseconds(11)));
  EXPECT_EQ(seen[1].when, TimePoint(kSecondFrameArrives));
}

TEST(SimNetwork, EachPairHasALinkOfItsOwn) {
  // Three senders to one, and one sender to three: nobody waits for another pair's frames.
  run(4, {}, [](auto& ends, SimWorld& world) {
    for (int peer = 1; peer < 4; ++peer) {
      ends[0]->send(Rank(peer), frame_of(0));
      ends[static_cast<std::size_t>(peer)]->send(Rank(0), frame_of(0));
    }
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(ends[0]->receive(kNever));
      EXPECT_EQ(world.clock().now(), TimePoint(milliseconds(11)));
    }
  });
}

TEST(SimNetwork, ManySendersShareTheReceiverFairly) {
  // At every moment of a many-to-one burst no sender is more than one frame ahead of another.
  run(5, {}, [](auto& ends, SimWorld&) {
    for (int sender = 1; sender < 5; ++sender) {
      for (int i = 0; i < 50; ++i) {
        ends[static_cast<std::size_t>(sender)]->send(Rank(0), frame_of(0));
      }
    }
    std::vector<int> count(5, 0);
    for (int i = 0; i < 200; ++i) {
      const auto received = ends[0]->receive(kNever);
      ASSERT_TRUE(received);
      ++count[static_cast<std::size_t>(received->from.value())];
      const auto [least, most] = std::minmax_element(count.begin() + 1, count.end());
      ASSERT_LE(*most - *least, 1);
    }
  });
}

TEST(SimNetwork, CountsTheBytesOfEachDirection) {
  SimWorld world(1);
  SimNetwork network(world, 2, uniform_links(2, kLink), {.link = {.byte_scale = 3}});
  world.run([&] {
    auto ends = network.endpoints();
    ends[0]->send(Rank(1), frame_of(1));
    ends[0]->send(Rank(1), frame_of(2));
    ends[1]->send(Rank(0), frame_of(3));
  });
  const std::vector<std::vector<std::uint64_t>> expected = {{0, 6000}, {3000, 0}};
  EXPECT_EQ(network.traffic(), expected);
}

TEST(SimNetwork, ReportsASendAndAReceiveSpanForEachFrame) {
  RecordingSink sink;
  run(2,
      {.events = &sink,
       .label =
           [](const FrameBytes&) {
             return FrameLabel{4, 17};
           }},
      [](auto& ends, SimWorld&) {
        ends[0]->send(Rank(1), frame_of(1));
        ends[0]->send(Rank(1), frame_of(2));
        ASSERT_TRUE(ends[1]->receive(kNever));
        ASSERT_TRUE(ends[1]->receive(kNever));
      });
  ASSERT_EQ(sink.events.size(), 4U);
  const Event& send = sink.events[1];
  EXPECT_EQ(send.kind, EventKind::kSend);
  EXPECT_EQ(send.worker, Rank(0));
  EXPECT_EQ(send.peer, Rank(1));
  EXPECT_EQ(send.begin, TimePoint(milliseconds(1)));
  EXPECT_EQ(send.end, TimePoint(milliseconds(2)));
  EXPECT_EQ(send.bytes, kFrameBytes);
  EXPECT_EQ(send.fragment, 4);
  EXPECT_EQ(send.step, 17);
  const Event& receive = sink.events[3];
  EXPECT_EQ(receive.kind, EventKind::kReceive);
  EXPECT_EQ(receive.worker, Rank(1));
  EXPECT_EQ(receive.peer, Rank(0));
  EXPECT_EQ(receive.begin, TimePoint(milliseconds(11)));
  EXPECT_EQ(receive.end, TimePoint(kSecondFrameArrives));
}

TEST(SimNetwork, CloseArrivesBehindTheFramesSentBefore) {
  run(2, {}, [](auto& ends, SimWorld& world) {
    ends[0]->send(Rank(1), frame_of(5));
    ends[0]->close();
    ends[0]->send(Rank(1), frame_of(6));
    const auto seen = receive_until(*ends[1], world, TimePoint(seconds(1)));
    EXPECT_EQ(what_of(seen), (std::vector<int>{5, -1}));
    EXPECT_EQ(seen[1].when, TimePoint(milliseconds(11)));
  });
}

// --- faults --------------------------------------------------------------------------------------

constexpr int kBurst = 2000;

/// Six standard deviations of a count of kBurst trials.
double six_sigma(double probability) {
  return 6 * std::sqrt(kBurst * probability * (1 - probability));
}

TEST(Faults, DropLosesFramesAtItsRateAndKeepsTheOrderOfTheRest) {
  FaultCounts counts;
  const auto seen = send_burst(kBurst, {.drop = 0.1}, &counts);
  EXPECT_NEAR(static_cast<double>(counts.dropped), 0.1 * kBurst, six_sigma(0.1));
  EXPECT_EQ(seen.size(), kBurst - counts.dropped);
  for (std::size_t i = 1; i < seen.size(); ++i) EXPECT_GT(seen[i].when, seen[i - 1].when);
}

TEST(Faults, DelayHoldsUpAFrameAndAllBehindIt) {
  FaultCounts counts;
  const auto seen = send_burst(kBurst, {.delay = 0.05}, &counts);
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(kBurst));
  for (int i = 0; i < kBurst; ++i) {
    EXPECT_EQ(seen[static_cast<std::size_t>(i)].what, i % 251);
    EXPECT_GE(seen[static_cast<std::size_t>(i)].when, TimePoint(milliseconds(11 + i)));
  }
  EXPECT_NEAR(static_cast<double>(counts.delayed), 0.05 * kBurst, six_sigma(0.05));
}

TEST(Faults, DuplicateDeliversAFrameAgainWithinTheLongestDelay) {
  FaultCounts counts;
  const auto seen =
      send_burst(kBurst, {.duplicate = 0.1, .longest_delay = milliseconds(5)}, &counts);
  EXPECT_NEAR(static_cast<double>(counts.duplicated), 0.1 * kBurst, six_sigma(0.1));
  EXPECT_EQ(seen.size(), kBurst + counts.duplicated);
}

TEST(Faults, ReorderLetsLaterFramesPass) {
  FaultCounts counts;
  const auto seen = send_burst(200, {.reorder = 0.2}, &counts);
  ASSERT_EQ(seen.size(), 200U);
  std::vector<int> order = what_of(seen);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Faults, CorruptFlipsOneBitOfTheCopyThatArrives) {
  NetworkOptions options;
  options.faults = {.corrupt = 1};
  const FrameBytes sent = frame_of(0);
  run(2, std::move(options), [&](auto& ends, SimWorld&) {
    ends[0]->send(Rank(1), sent);
    const auto received = ends[1]->receive(kNever);
    ASSERT_TRUE(received);
    int flipped = 0;
    for (const std::byte byte : *received->bytes) {
      flipped += __builtin_popcount(std::to_integer<unsigned>(byte));
    }
    EXPECT_EQ(flipped, 1);
    EXPECT_EQ(*sent, *frame_of(0)) << "the sender's frame is as it was";
  });
}

TEST(Faults, StopAtTheirEnd) {
  FaultCounts counts;
  send_burst(100, {.drop = 1, .until = TimePoint{}}, &counts);
  EXPECT_EQ(counts.dropped, 0U);
}

TEST(Faults, AreAFunctionOfTheSeed) {
  const FaultPlan plan{.drop = 0.1, .delay = 0.1, .duplicate = 0.1, .reorder = 0.1};
  const auto first = what_of(send_burst(200, plan, nullptr, 1));
  EXPECT_EQ(what_of(send_burst(200, plan, nullptr, 1)), first);
  EXPECT_NE(what_of(send_burst(200, plan, nullptr, 2)), first);
}

TEST(Faults, APartitionSeparatesTwoRanksForItsIntervalOnly) {
  NetworkOptions options;
  options.faults.partitions = {
      {Rank(1), Rank(0), TimePoint(milliseconds(10)), TimePoint(milliseconds(20))}};
  run(3, std::move(options), [](auto& ends, SimWorld& world) {
    for (int ms = 0; ms < 30; ms += 5) {
      world.sleep_until(TimePoint(milliseconds(ms)));
      ends[0]->send(Rank(1), frame_of(static_cast<std::uint8_t>(ms)));
      ends[0]->send(Rank(2), frame_of(static_cast<std::uint8_t>(ms)));
    }
    const TimePoint end(seconds(1));
    EXPECT_EQ(what_of(receive_until(*ends[1], world, end)), (std::vector<int>{0, 5, 20, 25}));
    EXPECT_EQ(what_of(receive_until(*ends[2], world, end)),
              (std::vector<int>{0, 5, 10, 15, 20, 25}));
  });
}

TEST(Faults, ACrashLosesWhatHadNotLeftAndTheOthersLearnOfItLater) {
  NetworkOptions options;
  options.faults.crashes = {{Rank(0), TimePoint(nanoseconds(2'500'000))}};
  bool unwound = false;
  run(2, std::move(options), [&](auto& ends, SimWorld& world) {
    const auto victim = world.spawn_in_group(0, "victim", [&] {
      try {
        for (std::uint8_t i = 0; i < 5; ++i) ends[0]->send(Rank(1), frame_of(i));
        world.compute(seconds(100), [] {});
      } catch (const RankCrashed& crash) {
        EXPECT_EQ(crash.rank, Rank(0));
        unwound = true;
        throw;
      }
    });
    const auto seen = receive_until(*ends[1], world, TimePoint(seconds(1)));
    // Two frames of a millisecond each had left whole; the news takes the link's 10 ms.
    EXPECT_EQ(what_of(seen), (std::vector<int>{0, 1, -1}));
    EXPECT_EQ(seen.back().when, TimePoint(nanoseconds(12'500'000)));
  });
  EXPECT_TRUE(unwound);
}

TEST(Faults, PlansOutOfRangeAreRefusedByName) {
  const auto message = [](const FaultPlan& plan) {
    try {
      check_faults(plan, 4);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({}), "accepted");
  EXPECT_EQ(message({.drop = 1.5}), "faults.drop = 1.5: must be in [0, 1], a probability");
  EXPECT_EQ(message({.crashes = {{Rank(4), TimePoint{}}}}),
            "faults.crash: rank 4 does not exist; there are ranks 0..3");
  EXPECT_THAT(message({.slowdowns = {{Rank(1), 0}}}), ::testing::HasSubstr("slowdown of rank 1"));
  EXPECT_THAT(message({.longest_delay = Duration::zero()}),
              ::testing::HasSubstr("faults.longest_delay"));
}

// --- topology ------------------------------------------------------------------------------------

TEST(Topology, DirectionsRttAndCongestionComeFromTheEntry) {
  const std::vector<LinkConfig> links = {{.a = "us",
                                          .b = "eu",
                                          .bits_per_s_up = 100e6,
                                          .bits_per_s_down = 20e6,
                                          .rtt = milliseconds(80),
                                          .loss = 0.01,
                                          .streams = 4,
                                          .congestion = "cubic"}};
  const auto matrix = link_matrix(links, {"eu", "us"});
  const DirectedLink& eu_to_us = matrix[1];
  const DirectedLink& us_to_eu = matrix[2];
  EXPECT_EQ(us_to_eu.bits_per_s, 100'000'000);
  EXPECT_EQ(eu_to_us.bits_per_s, 20'000'000);
  EXPECT_EQ(eu_to_us.one_way, milliseconds(40));
  EXPECT_EQ(eu_to_us.loss, 0.01);
  EXPECT_EQ(eu_to_us.streams, 4);
  EXPECT_EQ(eu_to_us.congestion, Congestion::kCubic);
}

TEST(Topology, TheEntryThatNamesMoreSitesWins) {
  const auto entry = [](const char* a, const char* b, double rate) {
    return LinkConfig{.a = a, .b = b, .bits_per_s_up = rate, .bits_per_s_down = rate};
  };
  const auto matrix =
      link_matrix({entry("x", "y", 3), entry("*", "*", 1), entry("*", "y", 2)}, {"x", "y", "z"});
  EXPECT_EQ(matrix[0 * 3 + 1].bits_per_s, 3);
  EXPECT_EQ(matrix[0 * 3 + 2].bits_per_s, 1);
  EXPECT_EQ(matrix[1 * 3 + 2].bits_per_s, 2);
  EXPECT_EQ(matrix[2 * 3 + 1].bits_per_s, 2);
}

TEST(Topology, NoEntriesMeanFreeLinks) {
  const auto matrix = link_matrix({}, {"x", "y"});
  ASSERT_EQ(matrix.size(), 4U);
  EXPECT_EQ(matrix[1].bits_per_s, 0);
  EXPECT_EQ(matrix[1].one_way, Duration::zero());
}

TEST(Topology, ErrorsNameThePairTheSiteAndTheValue) {
  const auto message = [](const std::vector<LinkConfig>& links) {
    try {
      (void)link_matrix(links, {"x", "y", "z"});
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({{.a = "x", .b = "y"}}),
            "no [[link]] joins 'x' and 'z': add one, or one with a = \"*\", b = \"*\"");
  EXPECT_EQ(message({{.a = "x", .b = "w"}}),
            "[[link]] names site 'w', which does not exist; sites: x, y, z");
  EXPECT_EQ(message({{.a = "*", .b = "*", .congestion = "reno"}}),
            "[[link]] * - *: congestion = 'reno': must be 'bbr' or 'cubic'");
  EXPECT_EQ(message({{.a = "*", .b = "*", .loss = 2}}),
            "[[link]] * - *: loss = 2: must be in [0, 1), the share of packets lost");
}

}  // namespace
}  // namespace isthmus
