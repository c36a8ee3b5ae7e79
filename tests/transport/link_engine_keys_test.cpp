// SPDX-License-Identifier: Apache-2.0
// Links with keys, without sockets: who may speak for whom, and the words of what does not fit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "link_net.h"
#include "transport/wire/frame.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace link_test;
using ::testing::HasSubstr;

std::vector<std::string> public_keys(int members) {
  std::vector<std::string> keys;
  for (int member = 0; member < members; ++member) {
    keys.push_back(fmt::format("key-of-{}", member) + std::string(32, 'x'));
  }
  return keys;
}
Net::Tweak with_keys(int members) {
  return [members](MemberOptions& options) { options.member_keys = public_keys(members); };
}

int events_with(const Net::Node& node, LinkEvent::Kind kind, const std::string& text) {
  return static_cast<int>(std::ranges::count_if(node.events, [&](const LinkEvent& event) {
    return event.kind == kind && event.text.find(text) != std::string::npos;
  }));
}

TEST(LinkKeysOfMembers, WhoComesWithItsOwnKeyIsWelcome) {
  Net net(3, with_keys(3));
  net.settle();
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(net.all_joined(rank));
  net.engine(0).submit(WorkerId(2), frame_of(0, 10));
  net.settle();
  EXPECT_EQ(net.node(2).delivered.size(), 1u);
}

TEST(LinkKeysOfMembers, AnothersPlaceIsRefusedAndCounted) {
  Net net(3, with_keys(3));
  net.opened_with[1] = 2;
  net.settle();
  ASSERT_TRUE(net.join_error(1));
  EXPECT_EQ(net.join_error(1)->field, RefusedField::kKey);
  EXPECT_THAT(net.join_error(1)->what,
              HasSubstr("opened with the key of member 2 says it is member 1"));
  EXPECT_FALSE(net.all_joined(1));
  // Three connections, told at the first and the second.
  EXPECT_EQ(events_with(net.node(0), LinkEvent::Kind::kRefused, "key of member 2"), 2);
}

// An id of a connection may be reused by another member once its first owner is gone.
TEST(LinkKeysOfMembers, AConnectionSpeaksForItsOwnerAlone) {
  Net net(3, with_keys(3));
  net.settle();
  const std::size_t before = net.node(0).delivered.size();
  net.opened_with[1] = 2;
  net.engine(1).submit(WorkerId(0), frame_of(0, 10));
  net.settle();
  EXPECT_EQ(net.node(0).delivered.size(), before);
  EXPECT_GE(events_with(net.node(0), LinkEvent::Kind::kRefused, "says it is member 1"), 1);
}

TEST(LinkKeysOfMembers, WhoseKeyIsUnknownMaySayNothing) {
  Net net(2, with_keys(2));
  net.opened_with[1] = 7;  // no member
  net.settle();
  EXPECT_FALSE(net.all_joined(1));
  net.engine(1).submit(WorkerId(0), frame_of(0, 10));
  net.settle();
  EXPECT_TRUE(net.node(0).delivered.empty());
}

TEST(LinkKeysOfMembers, AFailedHandshakeNamesPeerKeyAndRemedy) {
  const auto words = [](bool keys, HandshakeFault fault) {
    Net net(2, keys ? with_keys(2) : Net::Tweak());
    net.engine(0).handshake_failed(WorkerId(1), 0, fault);
    const LinkEvent& event = net.node(0).events.back();
    EXPECT_EQ(event.kind, LinkEvent::Kind::kHandshakeFailed);
    EXPECT_EQ(event.peer, WorkerId(1));
    const bool settled = fault == HandshakeFault::kMechanism;
    EXPECT_EQ(net.join_error(0).has_value(), settled);
    if (settled) {
      EXPECT_EQ(net.join_error(0)->field, RefusedField::kKey);
    }
    return event.text;
  };
  EXPECT_THAT(words(true, HandshakeFault::kMechanism),
              HasSubstr("member 1, connection 0: it speaks plain text"));
  EXPECT_THAT(words(false, HandshakeFault::kMechanism),
              HasSubstr("it wants a key, and this member has none"));
  EXPECT_THAT(words(true, HandshakeFault::kKeyRefused),
              HasSubstr("does not know this member's key key-of-0..."));
  EXPECT_THAT(words(true, HandshakeFault::kHungUp), HasSubstr("does not have the key key-of-1..."));
  EXPECT_THAT(words(false, HandshakeFault::kHungUp), HasSubstr("is no member, or wants a key"));
}

/// Handshakes that fail like that every so often, for so long. `foreign`: each time a key that is
/// no member's is refused too. RETURNS: why nobody waits any more.
std::string after_misfits(HandshakeFault fault, Duration every, Duration lasts,
                          const Net::Tweak& tweak, bool foreign = false) {
  Net net(2, tweak);
  for (const TimePoint end = net.now + lasts; net.now <= end; net.now += every) {
    net.engine(0).see(net.now);
    if (foreign) net.engine(0).stranger_key("another-key-of-1");
    net.engine(0).handshake_failed(WorkerId(1), 0, fault);
    net.engine(0).tick(net.now);
  }
  const auto error = net.join_error(0);
  if (!error) return "";
  EXPECT_EQ(error->field, RefusedField::kKey);
  return error->what;
}

// Until then both ends have seen it: the one whose key is refused, and the one that is hung up on.
TEST(LinkKeysOfMembers, AKeyThatKeepsBeingWrongIsWaitedForForFiveSeconds) {
  for (const HandshakeFault fault :
       {HandshakeFault::kKeyRefused, HandshakeFault::kHungUp, HandshakeFault::kWrongAddress}) {
    EXPECT_EQ(after_misfits(fault, 1s, 4s, with_keys(2), true), "");
    EXPECT_THAT(after_misfits(fault, 1s, 5s, with_keys(2), true), HasSubstr("key key-of-"));
  }
}

// As a proxy does that listens for a peer which has not been started yet.
TEST(LinkKeysOfMembers, WhoMerelyAcceptsAndHangsUpMayYetBeThePeer) {
  EXPECT_EQ(after_misfits(HandshakeFault::kHungUp, 1s, 600s, with_keys(2)), "");
  EXPECT_THAT(after_misfits(HandshakeFault::kKeyRefused, 1s, 5s, with_keys(2)),
              HasSubstr("does not know this member's key"));
}

TEST(LinkKeysOfMembers, AForeignKeyOfLongBeforeIsNotThePeers) {
  Net net(2, with_keys(2));
  net.engine(0).see(net.now);
  net.engine(0).stranger_key("of-a-passer-by");
  for (int second = 0; second < 60; ++second, net.now += 1s) {
    net.engine(0).see(net.now);
    net.engine(0).handshake_failed(WorkerId(1), 0, HandshakeFault::kHungUp);
    net.engine(0).tick(net.now);
  }
  EXPECT_FALSE(net.join_error(0));
}

// A process that stands still fails a handshake every five seconds, and may yet move.
TEST(LinkKeysOfMembers, HandshakesThatTimeOutAreNoWrongKey) {
  EXPECT_EQ(after_misfits(HandshakeFault::kHungUp, 5s, 60s, with_keys(2), true), "");
}

TEST(LinkKeysOfMembers, WhereAHubGivesKeysTheRightOneMayYetCome) {
  const auto by_hub = [](MemberOptions& options) {
    with_keys(2)(options);
    options.keys_from = WorkerId(1);
    options.keys_come = true;
    options.readmits = true;
  };
  EXPECT_EQ(after_misfits(HandshakeFault::kHungUp, 1s, 60s, by_hub, true), "");
}

// Of which it only takes some out: its own is that of the file, as all are.
TEST(LinkKeysOfMembers, WhereAHubGivesNoKeysItsOwnIsWrongForGood) {
  const auto by_hub = [](int hub) {
    return [hub](MemberOptions& options) {
      with_keys(2)(options);
      options.keys_from = WorkerId(hub);
      options.readmits = true;
    };
  };
  EXPECT_EQ(after_misfits(HandshakeFault::kHungUp, 1s, 60s, by_hub(1)), "") << "it may be a proxy";
  EXPECT_THAT(after_misfits(HandshakeFault::kHungUp, 1s, 5s, by_hub(1), true),
              HasSubstr("does not have the key key-of-1"));
  EXPECT_EQ(after_misfits(HandshakeFault::kHungUp, 1s, 60s, by_hub(0), true), "")
      << "a hub waits for everyone";
}

TEST(LinkKeysOfMembers, AHandshakeThatSucceedsMakesUpForThoseBefore) {
  Net net(2, with_keys(2));
  for (int second = 0; second < 60; ++second, net.now += 1s) {
    net.engine(0).see(net.now);
    net.engine(0).stranger_key("another-key-of-1");
    net.engine(0).handshake_failed(WorkerId(1), 0, HandshakeFault::kHungUp);
    if (second % 4 == 3) net.engine(0).stream_up(WorkerId(1), 0, net.now);
    net.engine(0).tick(net.now);
  }
  EXPECT_FALSE(net.join_error(0));
}

// Where all keys are in the configuration nobody waits for the table, which can only take some out.
TEST(LinkKeysOfMembers, WhoIsTakenOutOfTheTableIsLostAtAll) {
  Net net(3, [](MemberOptions& options) {
    options.member_keys = public_keys(3);
    options.keys_from = WorkerId(2);
    options.readmits = true;
  });
  net.settle();
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(net.all_joined(rank));
  std::vector<std::string> keys = public_keys(3);
  keys[1].clear();
  net.engine(2).set_keys({.version = 1, .members = keys, .guests = {}});
  net.opened_with[1] = 7;  // as it is asked of the table with every message
  net.settle();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(net.engine(rank).keys(), keys);
    ASSERT_TRUE(net.node(rank).gone.contains(1));
    EXPECT_THAT(net.node(rank).gone[1], HasSubstr("its key counts no more"));
  }
  EXPECT_FALSE(net.node(0).gone.contains(2));
  net.engine(1).submit(WorkerId(0), frame_of(0, 10));
  net.settle();
  EXPECT_TRUE(net.node(0).delivered.empty());
}

// ... and when its key counts again, so does its next process; the one that was lost stays out.
TEST(LinkKeysOfMembers, AKeyThatIsGivenBackBringsNoLostProcessBack) {
  Net net(3, [](MemberOptions& options) {
    options.member_keys = public_keys(3);
    options.keys_from = WorkerId(2);
    options.readmits = true;
  });
  net.settle();
  std::vector<std::string> keys = public_keys(3);
  keys[1].clear();
  net.engine(2).set_keys({.version = 1, .members = keys, .guests = {}});
  net.settle();
  net.engine(2).set_keys({.version = 2, .members = public_keys(3), .guests = {}});
  net.settle();
  ASSERT_EQ(net.engine(0).keys(), public_keys(3));
  const auto greet = [&](const Digest128& incarnation) {
    Hello hello{.protocol = kFrameVersion,
                .members = 3,
                .from = WorkerId(1),
                .to = WorkerId(0),
                .streams = 3};
    hello.configuration = std::string(64, '0');
    hello.incarnation = incarnation;
    const auto body = write_hello(hello);
    const auto header = write_link_header({.kind = LinkKind::kHello, .number = 9}, body);
    net.engine(0).from_connection("stranger", header, body, net.now, WorkerId(1));
    return kind_of(net.to_stranger.back());
  };
  EXPECT_EQ(greet(Net::incarnation_of(1)), LinkKind::kRefuse);
  EXPECT_EQ(greet(Net::incarnation_of(50)), LinkKind::kWelcome);
}

// ... and not replace one, nor bring back what a newer one has taken out.
TEST(LinkKeysOfMembers, ATableThatIsOldOrDiffersFromTheConfigurationIsNotUsed) {
  Net net(3, [](MemberOptions& options) {
    options.member_keys = public_keys(3);
    options.keys_from = WorkerId(2);
    options.readmits = true;
  });
  net.settle();
  std::vector<std::string> keys = public_keys(3);
  keys[1] = public_keys(4)[3];
  net.engine(2).set_keys({.version = 5, .members = keys, .guests = {}});
  net.settle();
  EXPECT_EQ(net.engine(0).keys()[1], "");
  net.engine(2).set_keys({.version = 4, .members = public_keys(3), .guests = {}});
  net.settle();
  EXPECT_EQ(net.engine(0).keys()[1], "");
}

// ZeroMQ says "trying again" after every handshake that failed; why is worth more.
TEST(LinkKeysOfMembers, TryingAgainDoesNotHideWhy) {
  Net net(2, with_keys(2));
  const std::vector<std::string> endpoints = {"here", "there"};
  const auto retried = [&] {
    net.engine(0).stream_trouble(WorkerId(1), 2, LinkEvent::Kind::kRetried, "no connection");
  };
  net.engine(0).handshake_failed(WorkerId(1), 2, HandshakeFault::kHungUp);
  retried();
  EXPECT_THAT(net.missing(0, endpoints), HasSubstr("does not have the key"));
  retried();  // nobody answers any more
  EXPECT_THAT(net.missing(0, endpoints), HasSubstr("no connection"));
  net.engine(0).stranger_key(std::string(40, 'k'));
  EXPECT_THAT(net.missing(0, endpoints),
              HasSubstr("; a connection with key kkkkkkkk... was refused: it is no member's"));
}

TEST(LinkKeysOfMembers, StrangersAreNamedAtPowersOfTwoAndInBoundedMemory) {
  Net net(2, with_keys(2));
  for (int i = 0; i < 9; ++i) net.engine(0).stranger_key(public_keys(2)[1]);
  EXPECT_EQ(net.node(0).events.size(), 4u);  // 1, 2, 4, 8
  for (int i = 0; i < 1000; ++i) net.engine(0).stranger_key(fmt::format("{:08}", i));
  // 63 more keys by name, then the rest together at 1, 2, ..., 512.
  EXPECT_LE(net.node(0).events.size(), 4u + 63u + 10u);
  EXPECT_GE(net.node(0).events.size(), 4u + 63u);
}

}  // namespace
}  // namespace isthmus::this_file
