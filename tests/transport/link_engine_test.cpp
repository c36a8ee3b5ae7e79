// SPDX-License-Identifier: Apache-2.0
// The links of members without sockets: connections that break, readers that are slow, peers that
// are strangers, hostile, silent or leave. Time is a number here.
#include "transport/links/link_engine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "core/base/rng.h"
#include "link_net.h"
#include "transport/wire/frame.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace link_test;
using ::testing::HasSubstr;

bool has_event(const Net::Node& node, LinkEvent::Kind kind, const std::string& text) {
  return std::ranges::any_of(node.events, [&](const LinkEvent& event) {
    return event.kind == kind && event.text.find(text) != std::string::npos;
  });
}

TEST(LinkEngine, MembersFindOneAnother) {
  Net net(4);
  EXPECT_FALSE(net.all_joined(0));
  net.settle();
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(net.all_joined(rank));
}

// Connections break and come back, their news is late, readers are slow: each frame comes once and
// in order, and neither side ever holds more than the window.
TEST(LinkEngine, FramesComeOnceAndInOrderOverConnectionsThatBreak) {
  constexpr std::uint32_t kFrames = 80;
  std::uint64_t breaks = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Rng rng{seed, Stream::kTestData};
    Net net(2);
    std::uint32_t submitted = 0;
    std::uint64_t step = 0;
    for (; step < 60000; ++step) {
      const auto words = rng.words(step);
      const int from = static_cast<int>(words[0] % 2);
      const int stream = static_cast<int>(words[1] % 3);
      const bool trouble = step < 20000;  // then the network is calm, and all must arrive
      if (words[2] % 64 == 0 && submitted < kFrames) {
        for (int rank = 0; rank < 2; ++rank) {
          net.engine(rank).submit(WorkerId(1 - rank), frame_of(submitted, words[3] % 300000));
        }
        ++submitted;
      } else if (words[2] % 256 == 1 && trouble) {
        net.set_up(from, 1 - from, stream, false);
        net.set_up(from, 1 - from, stream, true);
        ++breaks;
      } else if (words[2] % 2048 == 2) {
        net.node(from).take_all();
      } else if (words[2] % 64 == 3) {
        net.now += 300ms;
        net.engine(from).tick(net.now);
      } else {
        net.move(from, 1 - from, stream, words[3]);
      }
      for (int rank = 0; rank < 2; ++rank) {
        ASSERT_LE(net.engine(rank).bytes_in_flight(WorkerId(1 - rank)), kSmallestWindow);
        ASSERT_LE(net.engine(rank).bytes_held(WorkerId(1 - rank)), kSmallestWindow);
      }
      if (submitted == kFrames && net.node(0).delivered.size() >= kFrames &&
          net.node(1).delivered.size() >= kFrames) {
        break;
      }
    }
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(net.node(rank).delivered, up_to(kFrames)) << "seed " << seed << " step " << step;
      ASSERT_TRUE(net.node(rank).gone.empty()) << "seed " << seed;
    }
  }
  EXPECT_GT(breaks, 500u);
}

TEST(LinkEngine, FramesKeepToTheStreamsThatAreInUse) {
  Net net(2);
  net.settle();
  const auto data_on = [&](int stream) {
    return std::ranges::count_if(
        net.at(WorkerId(0), WorkerId(1), stream).forward,
        [](const auto& message) { return kind_of(message) == LinkKind::kData; });
  };
  const auto submit = [&](std::uint32_t first) {
    for (std::uint32_t i = 0; i < 4; ++i)
      net.engine(0).submit(WorkerId(1), frame_of(first + i, 100));
  };
  net.engine(0).use_streams(WorkerId(1), 1);
  submit(0);
  EXPECT_EQ(data_on(0), 4);
  EXPECT_EQ(data_on(1) + data_on(2), 0);
  net.settle();
  net.engine(0).use_streams(WorkerId(1), 3);
  submit(4);
  EXPECT_GT(data_on(1), 0);
  EXPECT_GT(data_on(2), 0);
  net.settle();
  EXPECT_EQ(net.node(1).delivered, up_to(8));
}

TEST(LinkEngine, ASlowReaderHoldsItsSenderUpAndNothingIsLost) {
  constexpr std::uint32_t kFrames = 100;
  Net net(2);
  net.settle();
  for (std::uint32_t i = 0; i < kFrames; ++i)
    net.engine(0).submit(WorkerId(1), frame_of(i, 1 << 20));
  net.settle();
  EXPECT_GE(net.node(1).held.size(), 7u);
  EXPECT_LE(net.node(1).held.size(), 8u);
  for (int i = 0; i < 100 && net.node(1).delivered.size() < kFrames; ++i) {
    net.node(1).take_all();
    net.settle();
  }
  EXPECT_EQ(net.node(1).delivered, up_to(kFrames));
}

TEST(LinkEngine, WhatAConnectionLosesWithoutBreakingIsNoticedByItsCount) {
  Net net(2);
  net.settle();
  for (std::uint32_t i = 0; i < 9; ++i) net.engine(0).submit(WorkerId(1), frame_of(i, 10));
  for (int k = 0; k < 3; ++k) net.at(WorkerId(0), WorkerId(1), k).forward.pop_back();
  net.settle();
  EXPECT_LT(net.node(1).delivered.size(), 9u);
  net.pass(1s);  // heartbeats carry the counts
  EXPECT_EQ(net.node(1).delivered, up_to(9));
}

TEST(LinkEngine, AcknowledgementsTakeAConnectionThatStands) {
  for (int cut = 0; cut < 3; ++cut) {
    Net net(2);
    net.settle();
    net.set_up(0, 1, cut, false);
    net.settle();
    for (std::uint32_t i = 0; i < 40; ++i) net.engine(0).submit(WorkerId(1), frame_of(i, 1 << 20));
    for (int i = 0; i < 40; ++i) {  // without a heartbeat
      net.settle();
      net.node(1).take_all();
    }
    EXPECT_EQ(net.node(1).delivered, up_to(40)) << "without connection " << cut;
  }
}

TEST(LinkEngine, AnAcknowledgementThatIsLostIsRepeatedOnEveryConnection) {
  for (int cut = 0; cut < 3; ++cut) {
    Net net(2);
    net.settle();
    for (std::uint32_t i = 0; i < 7; ++i) net.engine(0).submit(WorkerId(1), frame_of(i, 1 << 20));
    net.settle();
    net.node(1).take_all();
    for (int k = 0; k < 3; ++k) net.at(WorkerId(0), WorkerId(1), k).backward.clear();
    net.set_up(0, 1, cut, false);
    net.now += 1s;
    net.engine(1).tick(net.now);
    net.settle();
    EXPECT_EQ(net.engine(0).bytes_in_flight(WorkerId(1)), 0u) << "without connection " << cut;
  }
}

TEST(LinkEngine, WhoSendsBeyondItsCreditIsLost) {
  Net net(2);
  net.settle();
  const Connection& connection = net.at(WorkerId(0), WorkerId(1), 0);
  for (std::uint64_t i = 0; i < 10; ++i) {
    const Message message = message_of({.kind = LinkKind::kData, .number = i, .amount = i},
                                       frame_of(static_cast<std::uint32_t>(i), 1 << 20));
    net.engine(1).from_connection(connection.id, message.header, message.bytes(), net.now);
  }
  EXPECT_LE(net.node(1).delivered.size(), 8u);
  ASSERT_EQ(net.node(1).gone.size(), 1u);
  EXPECT_THAT(net.node(1).gone[0], HasSubstr("member 0: it sends more than the "));
}

TEST(LinkEngine, WhoAcknowledgesWhatWasNeverSentIsLost) {
  Net net(2);
  net.settle();
  const Message message = message_of({.kind = LinkKind::kAck, .number = 3}, nullptr);
  net.engine(0).from_stream(WorkerId(1), message.header, message.bytes(), net.now);
  EXPECT_THAT(net.node(0).gone[1], HasSubstr("it acknowledges 3 frames of 0"));
}

TEST(LinkEngine, WhoTakesLessThanTheBiggestFramesIsLost) {
  Net net(2);
  const Message message =
      message_of({.kind = LinkKind::kWelcome, .number = 1, .amount = 1000}, nullptr);
  while (net.move(0, 1, 0, 0)) {
  }
  net.engine(0).from_stream(WorkerId(1), message.header, message.bytes(), net.now);
  EXPECT_THAT(net.node(0).gone[1], HasSubstr("it takes only 1000 bytes"));
}

TEST(LinkEngine, StrangersChangeNothing) {
  Net net(2);
  net.settle();
  const std::vector<std::byte> junk(40, std::byte{'G'});
  for (int i = 0; i < 1000; ++i) net.engine(0).from_connection("stranger", junk, junk, net.now);
  EXPECT_TRUE(net.to_stranger.empty());
  EXPECT_TRUE(has_event(net.node(0), LinkEvent::Kind::kStranger, "not with ISLK"));
  EXPECT_LE(std::ranges::count_if(
                net.node(0).events,
                [](const LinkEvent& event) { return event.kind == LinkEvent::Kind::kStranger; }),
            10);
  // Data without a greeting is not taken.
  net.say(0, {.kind = LinkKind::kData}, frame_of(7, 10));
  ASSERT_EQ(net.to_stranger.size(), 1u);
  EXPECT_EQ(kind_of(net.to_stranger[0]), LinkKind::kWho);
  EXPECT_TRUE(net.node(0).delivered.empty());
  EXPECT_TRUE(net.node(0).gone.empty());
  net.engine(1).submit(WorkerId(0), frame_of(0, 10));
  net.settle();
  EXPECT_EQ(net.node(0).delivered, up_to(1));
}

TEST(LinkEngine, AnotherProcessCannotTakeAMembersPlace) {
  Net net(2);
  net.settle();
  net.engine(1).submit(WorkerId(0), frame_of(0, 10));
  net.settle();
  Hello hello{.protocol = kFrameVersion,
              .members = 2,
              .from = WorkerId(1),
              .to = WorkerId(0),
              .streams = 3};
  hello.configuration = std::string(64, '0');
  hello.incarnation.bytes[0] = 99;
  net.say(0, {.kind = LinkKind::kHello, .number = 1},
          std::make_shared<const std::vector<std::byte>>(write_hello(hello)));
  ASSERT_EQ(net.to_stranger.size(), 1u);
  ASSERT_EQ(kind_of(net.to_stranger[0]), LinkKind::kRefuse);
  EXPECT_EQ(read_refusal(net.to_stranger[0].bytes()).value().field, RefusedField::kIncarnation);
  net.engine(1).submit(WorkerId(0), frame_of(1, 10));
  net.settle();
  EXPECT_EQ(net.node(0).delivered, up_to(2));
}

TEST(LinkEngine, ASilentMemberIsLostAndToldSo) {
  Net net(3, [](MemberOptions& options) {
    if (options.self != WorkerId(2)) options.dead_after = 10s;
  });
  net.settle();
  for (int k = 0; k < 3; ++k) {  // what member 2 says goes nowhere, and it hears nothing
    for (int peer = 0; peer < 2; ++peer) {
      net.at(WorkerId(2), WorkerId(peer), k).up = false;
      net.at(WorkerId(peer), WorkerId(2), k).up = false;
    }
  }
  for (int second = 1; second <= 9; ++second) net.pass(1s);
  EXPECT_TRUE(net.node(0).gone.empty());
  net.pass(1s);
  ASSERT_EQ(net.node(0).gone.size(), 1u);
  EXPECT_EQ(net.node(0).gone[2], "member 2: it has been silent for 10.0 s");
  for (int k = 0; k < 3; ++k) net.set_up(2, 0, k, true);  // back, too late
  net.settle();
  EXPECT_THAT(net.node(2).gone[0], HasSubstr("has counted this one as lost"));
}

TEST(LinkEngine, WhoWasAsleepItselfBlamesNobody) {
  Net net(2, [](MemberOptions& options) { options.dead_after = 10s; });
  net.settle();
  net.now += 1h;
  net.engine(0).tick(net.now);
  net.engine(1).tick(net.now);
  EXPECT_TRUE(net.node(0).gone.empty());
}

TEST(LinkEngine, BrokenConnectionsThatDoNotComeBackAreALostMember) {
  Net net(2, [](MemberOptions& options) { options.gone_after = 2s; });
  net.settle();
  for (int k = 0; k < 3; ++k) net.set_up(0, 1, k, false);
  net.settle();
  net.pass(1s);
  EXPECT_TRUE(net.node(0).gone.empty());
  net.pass(1s);
  EXPECT_THAT(net.node(0).gone[1], HasSubstr("have not come back for 2.0 s: cut"));
}

TEST(LinkEngine, ThatTheyHaveNotIsFoundBetweenHeartbeats) {
  Net net(2, [](MemberOptions& options) { options.gone_after = 1500ms; });
  net.settle();
  net.pass(1s);
  for (int k = 0; k < 3; ++k) net.set_up(0, 1, k, false);
  net.settle();
  net.pass(1s);
  EXPECT_EQ(net.engine(0).next_tick(), net.now + 500ms);
  net.pass(500ms);
  EXPECT_THAT(net.node(0).gone[1], HasSubstr("have not come back for 1.5 s: cut"));
  EXPECT_EQ(net.engine(0).next_tick(), net.now + 500ms) << "the next heartbeat";
}

TEST(LinkEngine, TheTimeAMemberSleptIsNoTimeItsConnectionsWereBroken) {
  Net net(2, [](MemberOptions& options) {
    options.dead_after = 10s;
    options.gone_after = 2s;
  });
  net.settle();
  for (int k = 0; k < 3; ++k) net.set_up(0, 1, k, false);
  net.settle();
  net.now += 1h;
  net.engine(0).tick(net.now);
  EXPECT_TRUE(net.node(0).gone.empty());
  net.pass(1s);
  net.pass(1s);
  EXPECT_EQ(net.node(0).gone.size(), 1u);
}

TEST(LinkEngine, AFarewellGoesAsSoonAsTheLastFrameIsOut) {
  Net net(2);
  net.settle();
  for (std::uint32_t i = 0; i < 20; ++i) net.engine(0).submit(WorkerId(1), frame_of(i, 1 << 20));
  net.engine(0).close(net.now);
  for (int i = 0; i < 20; ++i) {  // without a heartbeat
    net.settle();
    net.node(1).take_all();
  }
  EXPECT_EQ(net.node(1).gone[0], "member 0: has left");
  EXPECT_TRUE(net.engine(0).all_told());
}

TEST(LinkEngine, AMemberLeavesOnlyWhenItsFramesAreThere) {
  Net net(2);
  net.settle();
  for (std::uint32_t i = 0; i < 20; ++i) net.engine(0).submit(WorkerId(1), frame_of(i, 1 << 20));
  net.engine(0).close(net.now);
  net.settle();
  EXPECT_FALSE(net.engine(0).all_told());
  EXPECT_TRUE(net.node(1).gone.empty());
  for (int i = 0; i < 10; ++i) {
    net.node(1).take_all();
    net.settle();
    net.pass(1s);
  }
  EXPECT_EQ(net.node(1).delivered, up_to(20));
  EXPECT_EQ(net.node(1).gone[0], "member 0: has left");
  EXPECT_TRUE(net.engine(0).all_told());
}

TEST(LinkEngine, AFarewellThatOvertakesFramesWaitsForThem) {
  Net net(2);
  net.settle();
  for (std::uint32_t i = 0; i < 9; ++i) net.engine(0).submit(WorkerId(1), frame_of(i, 10));
  net.engine(0).close(net.now);
  while (net.move(0, 1, 0, 1)) {  // connection 0 has the farewell; the others wait
  }
  EXPECT_LT(net.node(1).delivered.size(), 9u);
  EXPECT_TRUE(net.node(1).gone.empty());
  net.settle();
  EXPECT_EQ(net.node(1).delivered, up_to(9));
  EXPECT_EQ(net.node(1).gone[0], "member 0: has left");
}

struct Difference {
  std::string name;
  std::function<void(MemberOptions&)> change;  // of member 1
  RefusedField field;
  std::string text;
};
void PrintTo(const Difference& difference, std::ostream* out) { *out << difference.name; }

class LinkHandshake : public ::testing::TestWithParam<Difference> {};

TEST_P(LinkHandshake, NamesTheDifference) {
  Net net(2, [](MemberOptions& options) {
    if (options.self == WorkerId(1)) GetParam().change(options);
  });
  net.settle();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(net.join_error(rank)) << "member " << rank;
    EXPECT_EQ(net.join_error(rank)->field, GetParam().field);
    EXPECT_THAT(net.join_error(rank)->what, HasSubstr(GetParam().text));
  }
}

Digest128 digest_of(std::uint8_t first) {
  Digest128 digest;
  digest.bytes[0] = first;
  return digest;
}

INSTANTIATE_TEST_SUITE_P(
    Fields, LinkHandshake,
    ::testing::Values(
        Difference{"Run", [](MemberOptions& o) { o.identity.run = digest_of(0xab); },
                   RefusedField::kRun, "run id: member "},
        Difference{"Configuration",
                   [](MemberOptions& o) { o.identity.configuration = std::string(64, 'c'); },
                   RefusedField::kConfiguration, std::string(64, 'c')},
        Difference{"Streams", [](MemberOptions& o) { o.streams = 2; }, RefusedField::kConfiguration,
                   "net.streams: member "},
        Difference{"MostStreams", [](MemberOptions& o) { o.most_streams = 9; },
                   RefusedField::kConfiguration, "auto, 3 to 9"},
        Difference{"Layout", [](MemberOptions& o) { o.identity.layout = digest_of(0xcd); },
                   RefusedField::kLayout, "cd000000000000000000000000000000"}),
    [](const auto& difference) { return difference.param.name; });

}  // namespace
}  // namespace isthmus::this_file
