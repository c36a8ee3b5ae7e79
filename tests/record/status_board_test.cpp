// SPDX-License-Identifier: Apache-2.0
#include "record/status_board.h"

#include <gmock/gmock.h>

#include "record/run_directory.h"
#include "record/run_log.h"

namespace isthmus::app::this_file {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A board on a clock that the test moves.
class StatusBoardTest : public testing::Test {
 protected:
  StatusBoardTest() : board(options()) {
    totals.payload_bytes.resize(2);
    totals.wire_bytes.resize(2);
    totals.compute_s.resize(2);
  }
  StatusBoard::Options options() {
    StatusBoard::Options options;
    options.total_steps = 100;
    options.stalled_after = std::chrono::seconds(60);
    options.sites = {"east", "west"};
    options.self = WorkerId(0);
    options.now = [this] { return now; };
    return options;
  }
  void begin() {
    Manifest manifest;
    manifest.run_id = "abc";
    board.begin(manifest, totals, "runs/x");
  }
  void step(std::int64_t t, double loss) {
    totals.steps = t;
    totals.tokens += 1000;
    totals.train_loss = loss;
    StatusBoard::Step step;
    step.step = t;
    board.step(step, totals);
  }
  void link(LinkEvent::Kind kind, int stream, const std::string& text = "") {
    LinkEvent event;
    event.kind = kind;
    event.peer = WorkerId(1);
    event.stream = stream;
    event.text = text;
    board.link(WorkerId(0), event);
  }
  [[nodiscard]] PeerStatus west() const { return board.snapshot().peers.at(0); }

  double now = 1000;
  RunTotals totals;
  StatusBoard board;
};

TEST_F(StatusBoardTest, TellsWhatTheLastStepSaid) {
  begin();
  step(1, 3.5);
  now += 2;
  step(2, 3.25);
  const RunStatus status = board.snapshot();
  EXPECT_EQ(status.step, 2);
  EXPECT_EQ(status.loss, 3.25);
  EXPECT_EQ(status.tokens, 2000);
  EXPECT_TRUE(status.healthy);
  EXPECT_EQ(status.word, "step 2 of 100, loss 3.2500");
}

TEST_F(StatusBoardTest, TellsWhomARunWaitsForInTheMiddle) {
  begin();
  step(1, 3.5);
  board.stands_still("1 of 2 sites are fewer than net.min_sites = 2 (west is gone)");
  now += 3600;
  RunStatus status = board.snapshot();
  EXPECT_EQ(status.state, "waiting");
  EXPECT_TRUE(status.healthy);
  EXPECT_THAT(status.word, HasSubstr("(west is gone)"));
  board.stands_still("");
  status = board.snapshot();
  EXPECT_EQ(status.state, "running");
  EXPECT_TRUE(status.healthy) << "it has just begun again";
}

TEST_F(StatusBoardTest, TimeLeftFollowsThePaceOfThisSession) {
  totals.steps = 40;
  begin();
  now += 500;  // warming up is no pace
  step(41, 1);
  EXPECT_EQ(board.snapshot().eta_s, std::nullopt);
  now += 8;
  step(45, 1);
  EXPECT_EQ(board.snapshot().eta_s, 2.0 * 55);
}

TEST_F(StatusBoardTest, SpeedIsThatOfTheLastSeconds) {
  begin();
  for (int t = 1; t <= 40; ++t) {
    now += t <= 20 ? 10 : 1;  // slow at first
    step(t, 1);
  }
  EXPECT_NEAR(board.snapshot().tokens_per_s.value(), 1000, 1);
}

TEST_F(StatusBoardTest, StepsThatComeInBurstsAreNoFasterThanTheyAre) {
  begin();
  for (int t = 1; t <= 300; ++t) {  // 10,000 tokens every second, 11 ms long
    now += t % 10 == 1 ? 0.991 : 0.001;
    step(t, 1);
  }
  EXPECT_NEAR(board.snapshot().tokens_per_s.value(), 10'000, 50);
}

TEST_F(StatusBoardTest, FastStepsAreCountedAsTheyCome) {
  begin();
  for (int t = 1; t <= 20'000; ++t) {
    now += 0.001;
    step(t, 1);
  }
  EXPECT_NEAR(board.snapshot().tokens_per_s.value(), 1e6, 1e3);
}

TEST_F(StatusBoardTest, ASlowStepIsNoSpeedOfZero) {
  begin();
  for (int t = 1; t <= 5; ++t) {
    now += 50;
    step(t, 1);
  }
  now += 49;
  EXPECT_NEAR(board.snapshot().tokens_per_s.value(), 20, 1);
}

TEST_F(StatusBoardTest, IsNotWellOnceNothingHasGoneOnForTooLong) {
  begin();
  step(1, 1);
  now += 60;
  EXPECT_TRUE(board.snapshot().healthy);
  now += 1;
  EXPECT_FALSE(board.snapshot().healthy);
  EXPECT_THAT(board.snapshot().word, HasSubstr("1 min 01 s, 1 min 00 s allowed"));
  board.eval({.step = 1, .loss = 2});
  EXPECT_TRUE(board.snapshot().healthy) << "an evaluation is progress too";
}

TEST_F(StatusBoardTest, HowLongToWaitForSitesIsNotJudgedHere) {
  board.waiting("west has not answered");
  now += 600;
  EXPECT_TRUE(board.snapshot().healthy);
  EXPECT_THAT(board.snapshot().word, HasSubstr("west has not answered"));
  begin();
  now += 60;
  EXPECT_TRUE(board.snapshot().healthy) << "since the beginning";
  now += 1;
  EXPECT_FALSE(board.snapshot().healthy);
}

TEST_F(StatusBoardTest, TheClockOfARunGoesForwardAlone) {
  board.waiting("west has not answered");
  now += 30;
  EXPECT_EQ(board.snapshot().elapsed_s, 0);
  totals.wall_s = 500;  // of earlier sessions
  begin();
  EXPECT_EQ(board.snapshot().elapsed_s, 500);
  now += 10;
  totals.wall_s = 510;
  step(1, 1);
  now += 4;
  board.eval({.step = 1, .loss = 2});
  EXPECT_EQ(board.snapshot().elapsed_s, 514);
  now += 3;
  board.checkpoint(1, 10, 0.1);
  EXPECT_EQ(board.snapshot().elapsed_s, 517);
  totals.wall_s = 517;
  step(2, 1);
  EXPECT_EQ(board.snapshot().elapsed_s, 517);
}

TEST_F(StatusBoardTest, ARunThatGoesOnBeginsWithItsSums) {
  totals.steps = 40;
  totals.tokens = 4000;
  totals.compute_s = {7, 8};
  totals.payload_bytes = {100, 200};
  totals.wire_bytes = {110, 220};
  begin();
  const RunStatus status = board.snapshot();
  EXPECT_EQ(status.step, 40);
  EXPECT_EQ(status.resumed_after, 40);
  EXPECT_EQ(status.tokens, 4000);
  EXPECT_EQ(status.sites[1].compute_s, 8);
  EXPECT_EQ(status.sites[0].payload_bytes, 100U);
  EXPECT_EQ(status.sites[1].wire_bytes, 220U);
}

TEST_F(StatusBoardTest, APeerIsConnectedWhileOneOfItsConnectionsStands) {
  EXPECT_FALSE(west().connected);
  EXPECT_EQ(west().cause, "not here yet");
  link(LinkEvent::Kind::kConnected, 0);
  EXPECT_FALSE(west().connected) << "it has not accepted this one";
  link(LinkEvent::Kind::kWelcomed, 0);
  link(LinkEvent::Kind::kWelcomed, 1);
  link(LinkEvent::Kind::kDisconnected, 0, "connection 0 broke");
  EXPECT_TRUE(west().connected);
  link(LinkEvent::Kind::kDisconnected, 1, "connection 1 broke");
  EXPECT_FALSE(west().connected);
  EXPECT_EQ(west().cause, "connection 1 broke");
  link(LinkEvent::Kind::kWelcomed, 1);
  EXPECT_TRUE(west().connected);
  EXPECT_EQ(west().cause, "");
  EXPECT_EQ(west().troubles.at("disconnected"), 2);
}

TEST_F(StatusBoardTest, OverLinksThatDoNotTellAPeerIsConnectedOnceHeard) {
  StatusBoard::Options silent = options();
  silent.links_tell = false;
  StatusBoard mpi(silent);
  EXPECT_FALSE(mpi.snapshot().peers.at(0).connected);
  mpi.received(WorkerId(1), 7);
  EXPECT_TRUE(mpi.snapshot().peers.at(0).connected);
  EXPECT_EQ(mpi.snapshot().peers.at(0).cause, "");
  mpi.gone(WorkerId(1), "west has left");
  EXPECT_FALSE(mpi.snapshot().peers.at(0).connected);
  EXPECT_EQ(mpi.snapshot().peers.at(0).cause, "west has left");
  board.received(WorkerId(1), 7);
  EXPECT_FALSE(west().connected) << "these links tell";
}

TEST_F(StatusBoardTest, AHubIsAPeerAndNoSite) {
  StatusBoard::Options with_hub = options();
  with_hub.hub = true;
  StatusBoard hubs(with_hub);
  EXPECT_EQ(hubs.snapshot().sites.size(), 2U);
  ASSERT_EQ(hubs.snapshot().peers.size(), 2U);
  EXPECT_EQ(hubs.snapshot().peers[1].name, "hub");
  LinkEvent event;
  event.kind = LinkEvent::Kind::kLost;
  event.peer = WorkerId(2);
  event.text = "silent for 5 s";
  hubs.link(WorkerId(0), event);
  const RunStatus status = hubs.snapshot();
  EXPECT_TRUE(status.peers[1].lost);
  EXPECT_EQ(status.peers[1].cause, "silent for 5 s");
  EXPECT_EQ(status.strangers, 0);
  ASSERT_EQ(status.drops.size(), 1U);
  EXPECT_EQ(status.drops[0].peer, "hub");
}

TEST_F(StatusBoardTest, EveryDropIsKeptWithItsCause) {
  link(LinkEvent::Kind::kDisconnected, 0, "the network is unreachable");
  now += 5;
  const RunStatus status = board.snapshot();
  ASSERT_EQ(status.drops.size(), 1U);
  EXPECT_EQ(status.drops[0].peer, "west");
  EXPECT_EQ(status.drops[0].kind, "disconnected");
  EXPECT_EQ(status.drops[0].cause, "the network is unreachable");
  EXPECT_EQ(status.drops[0].ago_s, 5);
}

TEST_F(StatusBoardTest, TheOldestDropsGoFirst) {
  for (std::size_t i = 0; i < StatusBoard::kMostDrops + 3; ++i) {
    link(LinkEvent::Kind::kDisconnected, 0, std::to_string(i));
  }
  const RunStatus status = board.snapshot();
  ASSERT_EQ(status.drops.size(), StatusBoard::kMostDrops);
  EXPECT_EQ(status.drops.front().cause, "3");
  EXPECT_EQ(status.peers[0].troubles.at("disconnected"),
            static_cast<std::int64_t>(StatusBoard::kMostDrops) + 3);
}

TEST_F(StatusBoardTest, ALostSiteIsNotWellForGood) {
  begin();
  link(LinkEvent::Kind::kWelcomed, 0);
  link(LinkEvent::Kind::kLost, -1, "west: it has been silent for 10 s");
  step(1, 1);
  const RunStatus status = board.snapshot();
  EXPECT_FALSE(status.healthy);
  EXPECT_EQ(status.word, "site west is lost: west: it has been silent for 10 s");
}

TEST_F(StatusBoardTest, ASiteThatTheOthersGoOnWithoutIsNoTrouble) {
  begin();
  EXPECT_EQ(board.snapshot().members, board.snapshot().workers);
  link(LinkEvent::Kind::kLost, -1, "west: it has been silent for 10 s");
  board.membership(WorkerId(1), false);
  step(1, 1);
  RunStatus status = board.snapshot();
  EXPECT_TRUE(status.healthy);
  EXPECT_EQ(status.members, status.workers - 1);
  EXPECT_TRUE(west().lost);
  link(LinkEvent::Kind::kWelcomed, 0);  // a new process of it
  board.membership(WorkerId(1), true);
  status = board.snapshot();
  EXPECT_EQ(status.members, status.workers);
  EXPECT_TRUE(west().connected);
  EXPECT_FALSE(west().lost);
}

TEST_F(StatusBoardTest, StrangersAreNobodysTrouble) {
  LinkEvent event;
  event.kind = LinkEvent::Kind::kStranger;
  event.text = "someone without a key";
  board.link(WorkerId(0), event);
  const RunStatus status = board.snapshot();
  EXPECT_EQ(status.strangers, 1);
  EXPECT_EQ(status.drops.at(0).peer, "");
  EXPECT_TRUE(status.healthy);
}

TEST_F(StatusBoardTest, CountsWhatGoesToAPeerAndComesFromIt) {
  board.sent(WorkerId(1), 100);
  board.sent(WorkerId(1), 10);
  EXPECT_LT(west().heard_s, 0);
  board.received(WorkerId(1), 7);
  now += 3;
  EXPECT_EQ(west().sent_bytes, 110U);
  EXPECT_EQ(west().received_bytes, 7U);
  EXPECT_EQ(west().heard_s, 3);
}

TEST_F(StatusBoardTest, TellsWhatTcpTellsOfAPeer) {
  EXPECT_FALSE(west().tcp);
  board.reading(WorkerId(1), {.connections = 3,
                              .rtt = std::chrono::milliseconds(80),
                              .segments = 50,
                              .retransmits = 2,
                              .around = true});
  ASSERT_TRUE(west().tcp);
  EXPECT_EQ(west().tcp->connections, 3);
  EXPECT_EQ(west().tcp->rtt_s, 0.08);
  EXPECT_EQ(west().tcp->resent_segments, 2U);
  EXPECT_EQ(west().tcp->goodput_bits_per_s, std::nullopt);
  EXPECT_TRUE(west().tcp->around);
}

TEST_F(StatusBoardTest, RoundsAddUpByFragment) {
  RoundReport round;
  round.members = 2;
  round.applied = StepIndex(8);
  round.waited = std::chrono::milliseconds(250);
  board.round(round, 10, 12);
  round.applied = StepIndex(16);
  board.round(round, 10, 12);
  round.fragment = FragmentId(3);
  board.round(round, 1, 2);
  EXPECT_EQ(board.snapshot().rounds(), 0) << "their step is still to come";
  step(16, 1);
  const RunStatus status = board.snapshot();
  EXPECT_EQ(status.rounds(), 3);
  EXPECT_EQ(status.wait_s(), 0.75);
  EXPECT_EQ(status.fragments.at(0).rounds, 2);
  EXPECT_EQ(status.fragments.at(0).wire_bytes, 24U);
  EXPECT_EQ(status.fragments.at(0).last_step, 16);
  EXPECT_EQ(status.fragments.at(3).payload_bytes, 1U);
}

TEST(ThinCurve, KeepsFewPointsWhoseMeansAreThoseOfTheValues) {
  ThinCurve curve;
  constexpr std::int64_t kSteps = 10'000;
  for (std::int64_t t = 1; t <= kSteps; ++t) curve.add(t, static_cast<double>(t));
  const auto points = curve.points();
  EXPECT_LE(points.size(), ThinCurve::kMostPoints + 1);
  EXPECT_GE(points.size(), ThinCurve::kMostPoints / 2);
  EXPECT_EQ(points.back().first, kSteps);
  std::int64_t before = 0;
  for (const auto& [step, value] : points) {  // the mean of before + 1 .. step
    EXPECT_DOUBLE_EQ(value, static_cast<double>(before + 1 + step) / 2);
    before = step;
  }
}

TEST(ThinCurve, HoldsEachOfFewValues) {
  ThinCurve curve;
  curve.add(5, 1.5);
  curve.add(9, 2.5);
  EXPECT_THAT(curve.points(),
              testing::ElementsAre(ThinCurve::Point{5, 1.5}, ThinCurve::Point{9, 2.5}));
}

}  // namespace
}  // namespace isthmus::app::this_file
