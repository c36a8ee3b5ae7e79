// SPDX-License-Identifier: Apache-2.0
// Which of two ways connections take, from what was seen. dead_after is 10 s: the current way is
// given 5 s, the direct one must be good for 30 s before it is taken again.
#include "transport/links/link_way.h"

#include <gtest/gtest.h>

#include <vector>

#include "link_net.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using Act = LinkWay::Act;

/// A peer as it is seen, looked at every 100 ms.
struct Seen {
  LinkWay way{10s};
  TimePoint now{};
  LinkSigns signs{.joined = true};
  bool answers = true;  // on the current way
  std::vector<Act> acts;

  void pass(Duration time) {
    for (const TimePoint end = now + time; now < end;) {
      now += 100ms;
      if (answers) signs.answered = now;
      const Act act = way.observe(now, signs);
      if (act != Act::kNone) acts.push_back(act);
      if (act == Act::kTakeOther || act == Act::kDialAnew) signs.answered = now;
      if (act == Act::kTakeOther) signs.other_stands_since.reset();
    }
  }
  /// Onto the detour, at the cost of 5 s of silence.
  void go_around() {
    answers = false;
    pass(5s);
    signs.other_stands_since = now;
    pass(100ms);
    answers = true;
  }
};

TEST(LinkWay, StaysWhereItIsAnswered) {
  Seen seen;
  seen.pass(1h);
  EXPECT_TRUE(seen.acts.empty());
  EXPECT_FALSE(seen.way.around());
}

// It answers all the time: small packets pass.
TEST(LinkWay, TriesAnotherWhereNoValuesGetThrough) {
  Seen seen;
  seen.pass(1min);
  seen.signs.stalled_since = seen.now;
  seen.pass(4900ms);
  EXPECT_TRUE(seen.acts.empty());
  seen.pass(200ms);
  ASSERT_EQ(seen.acts, std::vector{Act::kTryOther});
  seen.signs.other_stands_since = seen.now;
  seen.pass(100ms);
  EXPECT_EQ(seen.acts.back(), Act::kTakeOther);
  EXPECT_TRUE(seen.way.around());
}

TEST(LinkWay, TriesAnotherAfterHalfOfDeadAfterAndTakesItOnceItStands) {
  Seen seen;
  seen.pass(1min);
  seen.answers = false;
  seen.pass(4900ms);
  EXPECT_TRUE(seen.acts.empty());
  seen.pass(200ms);
  EXPECT_EQ(seen.acts, std::vector{Act::kTryOther});
  seen.pass(1h);  // which never stands, as where the peer is dead
  EXPECT_EQ(seen.acts, std::vector{Act::kTryOther});
  seen.signs.other_stands_since = seen.now;
  seen.pass(100ms);
  EXPECT_EQ(seen.acts, (std::vector{Act::kTryOther, Act::kTakeOther}));
  EXPECT_TRUE(seen.way.around());
}

TEST(LinkWay, WhoIsHeardAgainInTimeStays) {
  Seen seen;
  seen.pass(1min);
  seen.answers = false;
  seen.pass(6s);
  seen.answers = true;
  seen.pass(1h);
  EXPECT_EQ(seen.acts, (std::vector{Act::kTryOther, Act::kLeaveOther}));
}

TEST(LinkWay, ConnectionsThatBrokeAreGivenAMoment) {
  Seen seen;  // also just after they have come to stand
  seen.pass(1s);
  seen.signs.down_since = seen.now;
  seen.pass(200ms);
  EXPECT_TRUE(seen.acts.empty());
  seen.pass(200ms);
  EXPECT_EQ(seen.acts, std::vector{Act::kTryOther});
}

TEST(LinkWay, WhoHasNotJoinedIsFirstGivenTheChanceToDoSoDirectly) {
  Seen seen;
  seen.signs.joined = false;
  seen.answers = false;
  seen.pass(1h);  // nobody is there
  seen.signs.other_stands_since = seen.now;
  seen.pass(1900ms);
  EXPECT_EQ(seen.acts, std::vector{Act::kTryOther});
  seen.pass(100ms);
  EXPECT_EQ(seen.acts, (std::vector{Act::kTryOther, Act::kTakeOther}));
}

TEST(LinkWay, ReturnsWhenTheDirectWayHasStoodForAWhileWithoutABreak) {
  Seen seen;
  seen.pass(1min);
  seen.go_around();
  seen.acts.clear();
  seen.pass(1min);
  EXPECT_EQ(seen.acts, std::vector{Act::kTryOther});
  seen.signs.other_stands_since = seen.now;
  seen.pass(29s);
  seen.signs.other_stands_since = seen.now;  // it broke, and is back
  seen.pass(29900ms);
  EXPECT_TRUE(seen.way.around());
  seen.pass(200ms);
  EXPECT_FALSE(seen.way.around());
  seen.pass(1h);
  EXPECT_EQ(seen.acts, (std::vector{Act::kTryOther, Act::kTakeOther}));
}

TEST(LinkWay, AWayThatFailsAgainSoonIsTrustedLaterEachTime) {
  Seen seen;
  seen.pass(1min);
  std::vector<Duration> trials;
  for (int time = 0; time < 12; ++time) {
    seen.go_around();
    ASSERT_TRUE(seen.way.around());
    trials.push_back(seen.way.direct_trial());
    seen.signs.other_stands_since = seen.now;
    seen.pass(seen.way.direct_trial() + 1s);
    ASSERT_FALSE(seen.way.around()) << time;
    seen.pass(10s);
  }
  EXPECT_EQ(trials.front(), 30s);
  EXPECT_EQ(trials[1], 60s);
  EXPECT_EQ(trials[2], 2min);
  EXPECT_EQ(trials.back(), 1h);
  seen.pass(11h);  // it has held
  seen.go_around();
  EXPECT_EQ(seen.way.direct_trial(), 30s);
}

TEST(LinkWay, TwoBadWaysTakeTurnsNoFasterThanTheyAreGivenUp) {
  Seen seen;
  seen.pass(1min);
  seen.answers = false;
  seen.signs.down_since = seen.now;
  int taken = 0;
  for (int i = 0; i < 600; ++i) {
    seen.signs.other_stands_since = seen.now;
    seen.acts.clear();
    seen.pass(100ms);
    taken += seen.acts == std::vector{Act::kTakeOther} ? 1 : 0;
  }
  EXPECT_GE(taken, 2);
  EXPECT_LE(taken, 24);  // in a minute: 5 s of each detour, a moment of each direct way
}

TEST(LinkWay, ADirectWayThatBreaksSoonAfterTheReturnIsLeftAtOnce) {
  Seen seen;
  seen.pass(1min);
  seen.go_around();
  seen.signs.other_stands_since = seen.now;
  seen.pass(31s);
  ASSERT_FALSE(seen.way.around());
  seen.pass(1s);
  seen.acts.clear();
  seen.signs.down_since = seen.now;
  seen.answers = false;
  seen.pass(400ms);
  EXPECT_EQ(seen.acts, std::vector{Act::kTryOther});
  seen.signs.other_stands_since = seen.now;
  seen.pass(100ms);
  EXPECT_EQ(seen.acts, (std::vector{Act::kTryOther, Act::kTakeOther}));
  seen.acts.clear();
  seen.signs.other_stands_since = seen.now;
  seen.pass(4s);  // the detour is to have its time, though nothing stands yet
  EXPECT_EQ(seen.acts, std::vector{Act::kTryOther});
}

TEST(LinkWay, ASilentDetourIsDialledAnewWhileThereIsNoDirectWay) {
  Seen seen;
  seen.pass(1min);
  seen.go_around();
  seen.pass(1min);
  seen.acts.clear();
  seen.answers = false;
  seen.pass(4800ms);
  EXPECT_TRUE(seen.acts.empty());
  seen.pass(400ms);
  EXPECT_EQ(seen.acts, (std::vector{Act::kDialAnew, Act::kTryOther}));
  seen.pass(4500ms);
  EXPECT_EQ(seen.acts.size(), 2U);
  seen.pass(1s);
  EXPECT_EQ(seen.acts.size(), 4U) << "once more after as long again";
  EXPECT_TRUE(seen.way.around());
}

using link_test::frame_of;
using link_test::Net;
using link_test::up_to;

/// All connections from 0 to 1 are replaced at once, as often as anybody likes, with whatever was
/// on its way over them lost; of the new ones the first alone comes to stand.
TEST(LinkWay, NoFrameIsLostOrDoubledWhenConnectionsAreReplaced) {
  Net net(2);
  net.settle();
  net.pass(1s);
  net.settle();
  ASSERT_TRUE(net.all_joined(0) && net.all_joined(1));
  constexpr std::uint32_t kFrames = 200;
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    net.node(0).send(WorkerId(1), frame_of(i, 100'000));
    if (i % 7 == 3) {
      for (int k = 0; k < net.streams; ++k) {
        net.set_up(0, 1, k, k == 0);
        net.at(WorkerId(0), WorkerId(1), k).news.clear();
      }
      net.engine(0).rerouted(WorkerId(1), true, net.now);
      net.engine(0).stream_up(WorkerId(1), 0, net.now);
      EXPECT_FALSE(net.engine(0).signs(WorkerId(1)).down_since);
    }
    if (i % 3 == 0) net.settle();
    if (i % 5 == 0) net.node(1).take_all();
  }
  for (int i = 0; i < 100 && net.node(1).delivered.size() < kFrames; ++i) {
    net.pass(1s);
    net.settle();
    net.node(1).take_all();
  }
  EXPECT_EQ(net.node(1).delivered, up_to(kFrames));
  EXPECT_TRUE(net.node(0).gone.empty());
}

/// A pair that goes round in good health takes the direct way again, which swallows all from 0 to 1
/// from then on. 1 is heard all the time, so it is neither gone nor silent.
TEST(LinkWay, WhoIsHeardIsNotLostToADirectWayThatIsDead) {
  Net net(2, [](MemberOptions& options) {
    options.gone_after = 1500ms;
    options.dead_after = 10s;
  });
  net.settle();
  net.pass(1s);
  ASSERT_TRUE(net.all_joined(0) && net.all_joined(1));
  for (int k = 0; k < net.streams; ++k) {
    net.set_up(0, 1, k, false);
    net.at(WorkerId(0), WorkerId(1), k).news.clear();
  }
  net.engine(0).rerouted(WorkerId(1), false, net.now);
  net.engine(0).stream_up(WorkerId(1), 0, net.now);
  EXPECT_FALSE(net.engine(0).signs(WorkerId(1)).down_since);
  for (int s = 0; s < 30; ++s) net.pass(1s);
  EXPECT_TRUE(net.node(0).gone.empty()) << net.node(0).gone[1];
  EXPECT_GE(net.now - net.engine(0).signs(WorkerId(1)).answered, 30s) << "which LinkWay looks at";
}

/// What answers is a port of this machine, whether or not the peer has the right key.
TEST(LinkWay, AroundAHandshakeThatEndsIsTheRelaysTrouble) {
  Net net(2);
  net.settle();
  net.engine(0).rerouted(WorkerId(1), true, net.now);
  net.engine(0).handshake_failed(WorkerId(1), 0, HandshakeFault::kHungUp);
  EXPECT_EQ(net.node(0).events.back().kind, LinkEvent::Kind::kRetried);
  net.engine(0).rerouted(WorkerId(1), false, net.now);
  net.engine(0).handshake_failed(WorkerId(1), 1, HandshakeFault::kHungUp);
  EXPECT_EQ(net.node(0).events.back().kind, LinkEvent::Kind::kHandshakeFailed);
}

}  // namespace
}  // namespace isthmus::this_file
