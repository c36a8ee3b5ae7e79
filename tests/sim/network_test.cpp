// SPDX-License-Identifier: Apache-2.0
// Endpoints over simulated links: times of arrival, traffic, events.
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
#include "network_fixture.h"
#include "sim/topology.h"

namespace isthmus::this_file {
namespace {

using namespace testing_support;
using std::chrono::nanoseconds;

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
      ends[0]->send(WorkerId(peer), frame_of(0));
      ends[static_cast<std::size_t>(peer)]->send(WorkerId(0), frame_of(0));
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
        ends[static_cast<std::size_t>(sender)]->send(WorkerId(0), frame_of(0));
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
    ends[0]->send(WorkerId(1), frame_of(1));
    ends[0]->send(WorkerId(1), frame_of(2));
    ends[1]->send(WorkerId(0), frame_of(3));
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
        ends[0]->send(WorkerId(1), frame_of(1));
        ends[0]->send(WorkerId(1), frame_of(2));
        ASSERT_TRUE(ends[1]->receive(kNever));
        ASSERT_TRUE(ends[1]->receive(kNever));
      });
  ASSERT_EQ(sink.events.size(), 4U);
  const Event& send = sink.events[1];
  EXPECT_EQ(send.kind, EventKind::kSend);
  EXPECT_EQ(send.worker, WorkerId(0));
  EXPECT_EQ(send.peer, WorkerId(1));
  EXPECT_EQ(send.begin, TimePoint(milliseconds(1)));
  EXPECT_EQ(send.end, TimePoint(milliseconds(2)));
  EXPECT_EQ(send.bytes, kFrameBytes);
  EXPECT_EQ(send.fragment, 4);
  EXPECT_EQ(send.step, 17);
  const Event& receive = sink.events[3];
  EXPECT_EQ(receive.kind, EventKind::kReceive);
  EXPECT_EQ(receive.worker, WorkerId(1));
  EXPECT_EQ(receive.peer, WorkerId(0));
  EXPECT_EQ(receive.begin, TimePoint(milliseconds(11)));
  EXPECT_EQ(receive.end, TimePoint(kSecondFrameArrives));
}

TEST(SimNetwork, CloseArrivesBehindTheFramesSentBefore) {
  run(2, {}, [](auto& ends, SimWorld& world) {
    ends[0]->send(WorkerId(1), frame_of(5));
    ends[0]->close();
    ends[0]->send(WorkerId(1), frame_of(6));
    const auto seen = receive_until(*ends[1], world, TimePoint(seconds(1)));
    EXPECT_EQ(what_of(seen), (std::vector<int>{5, -1}));
    EXPECT_EQ(seen[1].when, TimePoint(milliseconds(11)));
  });
}

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
}  // namespace isthmus::this_file
