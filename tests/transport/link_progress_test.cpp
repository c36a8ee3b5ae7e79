// SPDX-License-Identifier: Apache-2.0
// What TCP's counts say of values on their way, and what a member makes of that: a way that passes
// small packets alone, a process that hangs, and what must be taken for neither. Time is a number.
#include "transport/links/link_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "link_net.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace link_test;
using ::testing::HasSubstr;

using Counted = std::vector<std::optional<LinkCounters>>;

LinkCounters count(std::uint64_t acked, std::uint64_t queued, bool full = false) {
  LinkCounters counters;
  counters.acked_bytes = acked;
  counters.queued_bytes = queued;
  counters.peer_full = full;
  return counters;
}

/// What one connection shows, look after look.
std::vector<Movement> looks(const std::vector<std::optional<LinkCounters>>& shows,
                            bool passed_on = false) {
  LinkProgress progress;
  std::vector<Movement> found;
  for (const auto& each : shows) found.push_back(progress.observe(Counted{each}, passed_on));
  return found;
}

TEST(LinkProgress, ASegmentBetweenTwoLooksIsMovement) {
  EXPECT_EQ(looks({count(900, 60'000), count(900 + 1448, 60'000), count(900 + 1448 + 536, 60'000)}),
            (std::vector{Movement::kStalled, Movement::kMoves, Movement::kMoves}));
}

TEST(LinkProgress, ValuesThatLieThereAreStalled) {
  EXPECT_EQ(looks({count(900, 60'000), count(900, 60'000), count(900, 60'120)}),
            (std::vector{Movement::kStalled, Movement::kStalled, Movement::kStalled}));
}

// Every connection is greeted anew, which is acknowledged, and so are heartbeats.
TEST(LinkProgress, ConnectionsThatComeBackAndAreGreetedDoNotMoveValues) {
  EXPECT_EQ(looks({count(900, 60'000), count(900, 60'000), std::nullopt, count(1100, 0),
                   count(1100, 60'000), count(1100, 60'000), std::nullopt, count(1100, 60'000)}),
            (std::vector<Movement>(8, Movement::kStalled)));
}

TEST(LinkProgress, HeartbeatsOfOneConnectionDoNotMoveValuesOfAnother) {
  LinkProgress progress;
  for (std::uint64_t look = 0; look < 100; ++look) {
    EXPECT_EQ(progress.observe(Counted{count(900, 60'000), count(900 + 120 * look, 120)}, false),
              Movement::kStalled)
        << look;
  }
  EXPECT_EQ(progress.observe(Counted{count(900, 60'000), count(900 + 500'000, 0)}, false),
            Movement::kMoves);
}

TEST(LinkProgress, WhatHasGoneIsDeliveredAtTheSecondLook) {
  EXPECT_EQ(looks({count(900, 0), count(1000, 120), count(1100, 0)}),
            (std::vector{Movement::kStalled, Movement::kDelivered, Movement::kDelivered}));
}

TEST(LinkProgress, AWindowThatIsShutIsTheReceivers) {
  EXPECT_EQ(looks({count(900, 60'000), count(900, 60'000, true)}),
            (std::vector{Movement::kStalled, Movement::kMoves}));
  EXPECT_EQ(looks({count(900, 60'000), count(900, 60'000, true)}, true),
            (std::vector{Movement::kStalled, Movement::kStalled}))
      << "of a task of this machine that can pass nothing on";
}

TEST(LinkProgress, ASystemThatTellsNothingTellsAgainstNobody) {
  EXPECT_EQ(looks({std::nullopt, std::nullopt}), (std::vector<Movement>(2, Movement::kMoves)));
}

/// Two members of which 0 has frames on their way to 1, while both are heard.
class Values : public ::testing::Test {
 protected:
  explicit Values(const Net::Tweak& tweak = {})
      : net_(2, [&](MemberOptions& options) {
          options.dead_after = 8s;
          options.stuck_after = 2min;
          if (tweak) tweak(options);
        }) {
    net_.settle();
    net_.engine(0).submit(WorkerId(1), frame_of(0, 10));
    net_.settle();
    net_.node(1).take_all();
    pass(1s, Movement::kDelivered);  // acknowledged
    net_.engine(0).submit(WorkerId(1), frame_of(1, 1000));
  }
  void pass(Duration time, Movement movement) {
    for (const TimePoint end = net_.now + time; net_.now < end;) {
      net_.engine(0).moved(WorkerId(1), movement, net_.now);
      net_.pass(1s);
    }
  }
  [[nodiscard]] std::string why() { return net_.node(0).gone[1]; }
  [[nodiscard]] std::optional<TimePoint> stalled() {
    return net_.engine(0).signs(WorkerId(1)).stalled_since;
  }
  Net net_;
};

TEST_F(Values, ThatDoNotGetThroughLoseAPeerThatIsHeard) {
  const TimePoint begin = net_.now;
  pass(11s, Movement::kStalled);
  EXPECT_EQ(why(), "");
  EXPECT_EQ(stalled(), begin);
  pass(2s, Movement::kStalled);
  EXPECT_THAT(why(), HasSubstr("is heard, but nothing of 1260 bytes on their way to it has got"));
  EXPECT_THAT(why(), HasSubstr("for 12.0 s: something drops packets of full size"));
  EXPECT_EQ(net_.node(0).causes[1], LossCause::kStalled);
  net_.settle();
  EXPECT_EQ(net_.node(1).causes[0], LossCause::kGivenUp) << "which accuses nobody";
}

TEST_F(Values, ThatCrawlLoseNobody) {
  for (int k = 0; k < 100; ++k) {
    pass(10s, Movement::kStalled);
    pass(1s, Movement::kMoves);
  }
  EXPECT_EQ(why(), "");
}

// A connection that breaks and is back says nothing of that: what it carried has to go again.
TEST_F(Values, ConnectionsThatBreakAndComeBackAreNoMovement) {
  for (int k = 0; k < 3; ++k) {
    pass(3s, Movement::kStalled);
    for (int stream = 0; stream < 3; ++stream) net_.set_up(0, 1, stream, false);
    for (int stream = 0; stream < 3; ++stream) {
      while (net_.move(0, 1, stream, 0)) {
      }
    }
    net_.engine(0).moved(WorkerId(1), Movement::kDelivered, net_.now);  // TCP has nothing
    EXPECT_TRUE(stalled());
    for (int stream = 0; stream < 3; ++stream) net_.set_up(0, 1, stream, true);
    net_.settle();
  }
  EXPECT_EQ(why(), "");
  pass(4s, Movement::kStalled);
  EXPECT_THAT(why(), HasSubstr("something drops packets of full size"));
}

TEST_F(Values, ThatWereTakenHaveMoved) {
  pass(10s, Movement::kStalled);
  net_.node(1).take_all();
  pass(1s, Movement::kStalled);
  EXPECT_FALSE(stalled());
  pass(1min, Movement::kStalled);
  EXPECT_EQ(why(), "") << "nothing is on its way";
}

TEST_F(Values, ByWayOfARelayMoveInLumps) {
  net_.engine(0).rerouted(WorkerId(1), true, net_.now);
  for (int stream = 0; stream < 3; ++stream) net_.set_up(0, 1, stream, true);
  net_.settle();
  pass(60s, Movement::kStalled);
  EXPECT_EQ(why(), "");
  EXPECT_FALSE(stalled()) << "no reason for yet another way";
  pass(6s, Movement::kStalled);
  EXPECT_THAT(why(), HasSubstr("for 64.0 s"));
}

// TCP ends at the task that passes them on: that has them, and the peer may be minutes away.
TEST_F(Values, ByWayOfARelayAreNotThereWhenTheyAreDelivered) {
  pass(100s, Movement::kDelivered);
  net_.engine(0).rerouted(WorkerId(1), true, net_.now);
  for (int stream = 0; stream < 3; ++stream) net_.set_up(0, 1, stream, true);
  net_.settle();
  pass(10min, Movement::kDelivered);
  EXPECT_EQ(why(), "");
}

TEST_F(Values, WhoWasAsleepItselfBlamesNobody) {
  pass(10s, Movement::kStalled);
  net_.now += 1h;
  net_.engine(0).tick(net_.now);
  EXPECT_EQ(why(), "");
  EXPECT_FALSE(stalled());
}

TEST_F(Values, ThatAreThereAndThatNobodyTakesAreOfAProcessThatHangs) {
  pass(119s, Movement::kDelivered);
  EXPECT_EQ(why(), "");
  EXPECT_FALSE(stalled()) << "another way would not help";
  pass(2s, Movement::kDelivered);
  EXPECT_THAT(why(), HasSubstr("has taken none for 120.0 s: its process hangs"));
}

TEST_F(Values, OfWhichOneIsTakenNowAndThenAreOfASlowProcess) {
  for (std::uint32_t k = 0; k < 20; ++k) {
    pass(100s, Movement::kDelivered);
    net_.node(1).take_all();
    net_.engine(0).submit(WorkerId(1), frame_of(2 + k, 1000));
  }
  EXPECT_EQ(why(), "");
}

// At a start all wait until the last one is there, and look at nothing before.
TEST(LinkValues, NobodyHangsBeforeItHasTakenAnything) {
  Net net(2, [](MemberOptions& options) { options.stuck_after = 2min; });
  net.settle();
  net.engine(0).submit(WorkerId(1), frame_of(0, 1000));
  for (int second = 0; second < 600; ++second) {
    net.engine(0).moved(WorkerId(1), Movement::kDelivered, net.now);
    net.pass(1s);
  }
  EXPECT_TRUE(net.node(0).gone.empty());
}

/// What the cap holds back is no fault of the way, nor of the peer.
class CappedValues : public Values {
 protected:
  CappedValues()
      : Values([](MemberOptions& options) {
          if (options.self == WorkerId(0)) options.send_bits_per_s = [] { return 8.0; };
        }) {}
};

TEST_F(CappedValues, ThatGoAgainWaitForTheirTurn) {
  pass(1min, Movement::kDelivered);  // as long as the first frame is paid for
  ASSERT_GT(net_.engine(0).bytes_in_flight(WorkerId(1)), 0u);
  for (int stream = 0; stream < 3; ++stream) net_.set_up(0, 1, stream, true);
  net_.settle();
  pass(5min, Movement::kDelivered);
  EXPECT_EQ(why(), "");
}

// Where a cap is used up something waits at nearly every look.
TEST_F(CappedValues, ThatDoNotGetThroughLoseAPeerAllTheSame) {
  pass(1min, Movement::kDelivered);  // as long as the first frame is paid for
  ASSERT_GT(net_.engine(0).bytes_in_flight(WorkerId(1)), 0u);
  for (int k = 0; k < 5 && why().empty(); ++k) {
    pass(3s, Movement::kStalled);
    for (int stream = 0; stream < 3; ++stream) net_.set_up(0, 1, stream, true);
    net_.settle();
    pass(1s, Movement::kDelivered);
  }
  EXPECT_THAT(why(), HasSubstr("something drops packets of full size"));
}

}  // namespace
}  // namespace isthmus::this_file
