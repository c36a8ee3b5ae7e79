// SPDX-License-Identifier: Apache-2.0
// Members that are late for rounds and take part in them without their work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/elastic_run.h"
#include "transport/exchange/round_deadline.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::ElementsAre;

// ---- one late member

/// Four members with a deadline of 5 s, links of 1 ms, one fragment.
class FourMembers : public ::testing::Test {
 protected:
  static SyncId id(int step, int fragment = 0) { return {FragmentId(fragment), StepIndex(step)}; }
  void begin(int m, const SyncId& id) {
    net.begin(m, contribution_of(codec, WorkerId(m), 40'000, id, ReductionKind::kReduce));
  }
  void begin(std::initializer_list<int> members, const SyncId& id) {
    for (const int m : members) begin(m, id);
  }
  /// Half a minute, or until nothing more happens.
  void settle() {
    const TimePoint end = net.now() + 30s;
    while (net.next() < end) ASSERT_TRUE(net.advance());
  }
  [[nodiscard]] std::vector<WorkerId> contributors(int m, const SyncId& id) {
    if (!net.engine(m).ready(id)) return {};
    const auto result = net.engine(m).take(id);
    if (!result) {
      ADD_FAILURE() << result.error().what;
      return {};
    }
    EXPECT_EQ(result->values,
              naive_mean(*codec, result->contributors, 40'000, ReductionKind::kReduce));
    return result->contributors;
  }
  void all_take_part_in(const SyncId& id) {
    begin({0, 1, 2, 3}, id);
    settle();
    for (int m = 0; m < 4; ++m) {
      EXPECT_THAT(contributors(m, id),
                  ElementsAre(WorkerId(0), WorkerId(1), WorkerId(2), WorkerId(3)));
    }
  }

  explicit FourMembers(Duration deadline = 5s)
      : net(4, 1, {.delay = 1ms}, true, 1, 24h, false, {}, {}, RoundDeadline(deadline)) {}

  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  EngineNet net;
};

/// The same with a deadline of a millisecond.
class ShortOfTime : public FourMembers {
 protected:
  ShortOfTime() : FourMembers(1ms) {}
};

TEST_F(FourMembers, TheLateOneTakesPartWithoutItsWorkAndFindsTheResult) {
  all_take_part_in(id(1));
  const TimePoint begun = net.now();
  begin({0, 1, 3}, id(2));
  settle();
  EXPECT_GE(net.now() - begun, 5s);
  EXPECT_LE(net.now() - begun, 5s + 20ms);
  for (const int m : {0, 1, 3}) {
    EXPECT_THAT(contributors(m, id(2)), ElementsAre(WorkerId(0), WorkerId(1), WorkerId(3)));
  }
  EXPECT_EQ(net.engine(2).proxies().begun_ahead(), StepIndex(2));
  const std::vector<ProxyRound> told = net.engine(2).proxies().take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].id, id(2));
  EXPECT_EQ(told[0].others, 3);
  EXPECT_GE(told[0].late, 5s);
  begin(2, id(2));
  EXPECT_EQ(net.engine(2).proxies().begun_ahead(), std::nullopt);
  EXPECT_THAT(contributors(2, id(2)), ElementsAre(WorkerId(0), WorkerId(1), WorkerId(3)));
  all_take_part_in(id(3));
}

TEST_F(FourMembers, WhoBeginsInTimeContributes) {
  all_take_part_in(id(1));
  begin({0, 1, 3}, id(2));
  const TimePoint begun = net.now();
  while (net.busy()) ASSERT_TRUE(net.advance());
  EXPECT_LT(net.now() - begun, 1s);
  begin(2, id(2));
  settle();
  EXPECT_LT(net.now() - begun, 1s);
  EXPECT_THAT(contributors(2, id(2)),
              ElementsAre(WorkerId(0), WorkerId(1), WorkerId(2), WorkerId(3)));
  EXPECT_TRUE(net.engine(2).proxies().take().empty());
}

TEST_F(FourMembers, TwoOfFourAreWaitedFor) {
  all_take_part_in(id(1));
  begin({0, 3}, id(2));
  settle();
  EXPECT_FALSE(net.engine(0).ready(id(2)));
  begin(1, id(2));  // now it is one
  settle();
  EXPECT_THAT(contributors(0, id(2)), ElementsAre(WorkerId(0), WorkerId(1), WorkerId(3)));
}

// Nobody knows how its contribution looks.
TEST_F(FourMembers, TheFirstRoundOfAFragmentWaitsForAll) {
  begin({0, 1, 3}, id(1));
  settle();
  EXPECT_FALSE(net.engine(0).ready(id(1)));
  begin(2, id(1));
  settle();
  EXPECT_THAT(contributors(2, id(1)),
              ElementsAre(WorkerId(0), WorkerId(1), WorkerId(2), WorkerId(3)));
}

TEST_F(FourMembers, NobodyIsMoreThanTwoRoundsOfAFragmentAheadOfItsTraining) {
  all_take_part_in(id(1));
  for (const int step : {2, 3, 4}) {
    begin({0, 1, 3}, id(step));
    settle();
    for (const int m : {0, 1, 3}) {
      EXPECT_EQ(contributors(m, id(step)).size(), step < 4 ? 3u : 0u);
    }
  }
  EXPECT_FALSE(net.engine(0).ready(id(4))) << "its training is waited for";
  EXPECT_EQ(net.engine(2).proxies().missed_in_a_row(), 2);
  EXPECT_EQ(net.engine(2).proxies().begun_ahead(), StepIndex(3));
  begin(2, id(2));
  EXPECT_EQ(contributors(2, id(2)).size(), 3u);
  settle();
  EXPECT_EQ(contributors(0, id(4)).size(), 3u);
  begin(2, id(3));
  begin(2, id(4));
  EXPECT_EQ(contributors(2, id(3)).size(), 3u);
  EXPECT_EQ(contributors(2, id(4)).size(), 3u);
  EXPECT_EQ(net.engine(2).proxies().missed_in_a_row(), 3);
  all_take_part_in(id(5));
  EXPECT_EQ(net.engine(2).proxies().missed_in_a_row(), 0);
}

// What member 2 is told of the first of two rounds is lost: it must not begin the second before.
TEST_F(FourMembers, RoundsAreBegunInOrderWhateverIsLost) {
  for (const int fragment : {0, 1}) all_take_part_in(id(1, fragment));
  net.forge = [](int, const FrameBytes& frame) {
    const FrameHeader head = parse_frame(*frame)->header;
    const bool lost = head.kind == FrameKind::kBegun && head.id == id(2, 0);
    return lost ? make_frame({.kind = FrameKind::kNote}) : frame;
  };
  for (const int fragment : {0, 1}) begin({0, 1, 3}, id(2, fragment));
  settle();
  EXPECT_TRUE(net.engine(2).proxies().take().empty());
  begin(2, id(2, 0));
  settle();
  EXPECT_EQ(contributors(0, id(2, 0)).size(), 4u);
  EXPECT_EQ(contributors(0, id(2, 1)).size(), 3u);
}

TEST_F(FourMembers, NothingIsBegunWhereTrainingMightNotBeginIt) {
  bool may = false;
  net.may_proxy = [&](int member, StepIndex sent) {
    EXPECT_EQ(member, 2);
    EXPECT_EQ(sent, StepIndex(2));
    return may;
  };
  all_take_part_in(id(1));
  begin({0, 1, 3}, id(2));
  const TimePoint begun = net.now();
  while (net.now() < begun + 20s) ASSERT_TRUE(net.advance());
  EXPECT_FALSE(net.engine(0).ready(id(2)));
  may = true;
  settle();
  EXPECT_EQ(contributors(0, id(2)).size(), 3u);
}

// Neither at each frame, nor as often as a deadline of a millisecond ends.
TEST_F(ShortOfTime, WhoMustNotBeginIsAskedAFewTimesASecond) {
  int asked = 0;
  net.may_proxy = [&](int, StepIndex) {
    ++asked;
    return false;
  };
  all_take_part_in(id(1));
  const TimePoint begun = net.now();
  begin({0, 1, 3}, id(2));
  while (asked == 0) ASSERT_TRUE(net.advance());
  begin({0, 1, 3}, id(2, 1));  // more frames, to the late one too
  while (net.now() < begun + 20s) ASSERT_TRUE(net.advance());
  EXPECT_GE(asked, 20);
  EXPECT_LE(asked, 20 * 20 + 1);
}

// Its training is stuck in round 2, which member 3's death then begins again.
TEST_F(FourMembers, ARoundThatWasBegunInItsNameBeginsAgainWithWhoIsLeft) {
  all_take_part_in(id(1));
  begin({0, 1, 3}, id(2));
  while (!net.engine(2).proxies().begun_ahead()) ASSERT_TRUE(net.advance());
  net.kill(3);
  settle();
  for (const int m : {0, 1}) {
    EXPECT_THAT(contributors(m, id(2)), ElementsAre(WorkerId(0), WorkerId(1)));
  }
  begin(2, id(2));
  EXPECT_THAT(contributors(2, id(2)), ElementsAre(WorkerId(0), WorkerId(1)));
  begin({0, 1, 2}, id(3));
  settle();
  EXPECT_EQ(contributors(2, id(3)).size(), 3u);
}

// Of six, five have begun a round, and one of them names another round before it than it had begun:
// the last to speak, or the first. Four are two thirds, so the late one goes by them.
TEST(StandingIn, NoSingleMemberDecidesWhichRoundComesNext) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const auto id = [](int step, int fragment) {
    return SyncId{FragmentId(fragment), StepIndex(step)};
  };
  for (const auto& [liar, floods] : {std::pair{0, false}, {5, false}, {0, true}, {5, true}}) {
    EngineNet net(6, 1, {.delay = 1ms}, true, 1, 24h, false, {}, {}, RoundDeadline(1s));
    const auto begin = [&](std::initializer_list<int> members, const SyncId& round) {
      for (const int m : members) {
        net.begin(m, contribution_of(codec, WorkerId(m), 100, round, ReductionKind::kReduce));
      }
    };
    const auto settle = [&] {
      const TimePoint end = net.now() + 30s;
      while (net.next() < end) ASSERT_TRUE(net.advance());
    };
    for (const int fragment : {0, 1}) {
      begin({0, 1, 2, 3, 4, 5}, id(1, fragment));
      settle();
      for (int m = 0; m < 6; ++m) ASSERT_TRUE(net.engine(m).take(id(1, fragment)));
    }
    // It says that the second of two rounds follows what all have begun last, and so does a round
    // that nobody has begun.
    net.forge = [&, liar = liar](int from, const FrameBytes& frame) {
      const FrameHeader head = parse_frame(*frame)->header;
      if (from != liar || head.kind != FrameKind::kBegun) return frame;
      FrameHeader lie = head;
      if (head.id == id(2, 0)) lie.id = id(9, 1);
      lie.part = 1;
      lie.offset = 1;
      return make_frame(lie);
    };
    // And it makes up more rounds than are kept of anybody: these take its own places only.
    const int late = liar == 0 ? 5 : 0;
    for (int k = 0; floods && k < 10'000; ++k) {
      Outbox out;
      const FrameBytes made_up =
          make_frame({.kind = FrameKind::kBegun, .id = id(10 + k, 0), .part = 1, .offset = 1});
      net.engine(late).receive(WorkerId(liar), made_up, net.now(), out);
    }
    if (liar == 0) begin({0}, id(2, 0));
    if (liar == 0) begin({0}, id(2, 1));
    for (const int fragment : {0, 1}) begin({1, 2, 3, 4}, id(2, fragment));
    if (liar == 5) begin({5}, id(2, 0));
    if (liar == 5) begin({5}, id(2, 1));
    settle();
    const std::vector<ProxyRound> told = net.engine(late).proxies().take();
    ASSERT_EQ(told.size(), 2u) << "liar " << liar;
    EXPECT_EQ(told[0].id, id(2, 0));
    EXPECT_EQ(told[1].id, id(2, 1));
    EXPECT_EQ(told[0].others, 4);
    for (const int fragment : {0, 1}) begin({late}, id(2, fragment));
    for (int m = 0; m < 6; ++m) {
      for (const int fragment : {0, 1}) {
        ASSERT_TRUE(net.engine(m).ready(id(2, fragment)));
        EXPECT_EQ(net.engine(m).take(id(2, fragment))->contributors.size(), 5u);
      }
    }
  }
}

TEST(StandingIn, OfTwoMembersTheOtherIsWaitedFor) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  EngineNet net(2, 1, {}, true, 1, 24h, false, {}, {}, RoundDeadline(1s));
  const auto begin = [&](int m, int step) {
    net.begin(m, contribution_of(codec, WorkerId(m), 100, {FragmentId(0), StepIndex(step)},
                                 ReductionKind::kGather));
  };
  const auto settle = [&] {
    const TimePoint end = net.now() + 30s;
    while (net.next() < end) ASSERT_TRUE(net.advance());
  };
  for (const int m : {0, 1}) begin(m, 1);
  settle();
  begin(0, 2);
  settle();
  EXPECT_FALSE(net.engine(0).ready({FragmentId(0), StepIndex(2)}));
  EXPECT_TRUE(net.engine(1).proxies().take().empty());
}

// ---- late members among deaths, returns and leaves

enum class Owners { kDirect, kInGroups, kInShares };

class LateSweep : public ::testing::TestWithParam<Owners> {
 protected:
  static Plan plan(std::uint64_t seed) {
    return with_late(GetParam() == Owners::kInShares   ? plan_in_shares(seed)
                     : GetParam() == Owners::kInGroups ? plan_in_groups(seed)
                                                       : plan_of(seed));
  }
  static EngineNet net(const Plan& plan, std::uint64_t seed) {
    // As long as a few frames take, or as it turns out to be.
    const RoundDeadline deadline =
        seed % 4 < 2 ? RoundDeadline(150ms) : RoundDeadline::adaptive(2s);
    return {plan.members,   seed,  faults_of(seed), true,        1,
            retry_of(seed), false, plan.groups,     plan.shares, deadline};
  }
};
INSTANTIATE_TEST_SUITE_P(OneLevelAndTwo, LateSweep,
                         ::testing::Values(Owners::kDirect, Owners::kInGroups, Owners::kInShares),
                         [](const auto& each) {
                           return each.param == Owners::kInShares   ? "InShares"
                                  : each.param == Owners::kInGroups ? "InGroups"
                                                                    : "Direct";
                         });

TEST_P(LateSweep, EveryRoundIsAppliedOnceByAllWhoeverIsLateOrDiesOrComesBackOrGoes) {
  int without = 0, joined = 0, left = 0;
  for (const std::uint64_t seed : sweep_seeds(seeds_of_a_kind())) {
    const SweptSchedule schedule(seed);
    const Plan plan = LateSweep::plan(seed);
    EngineNet net = LateSweep::net(plan, seed);
    ElasticRun run(plan, net, keeps_all(seed));
    const auto draw = [&](int below) { return static_cast<int>(net.uniform() * below); };
    const int fated = 1 + draw(plan.members - 1);
    const int moment = draw(400);
    const int fate = static_cast<int>(seed % 3);  // nothing, dies and comes back, leaves
    int again = draw(60);                         // when somebody is late, again and again
    bool back = false;
    int happened = 0;
    while (run.advance()) {
      ASSERT_LT(++happened, 100000) << "seed " << seed;
      if (happened == again) {
        run.straggle(draw(plan.members), 100 + draw(1500));
        again += 50 + draw(400);
      }
      if (happened == moment && fate == 1) net.kill(fated, 100ms);
      if (happened == moment && fate == 2) left += run.leave(fated) ? 1 : 0;
      if (fate == 1 && !back && happened > moment && run.all_know_gone(fated)) {
        back = true;
        run.joined(fated);
        run.join(fated);
        ++joined;
      }
    }
    run.check("seed " + std::to_string(seed));
    const bool once = keeps_all(seed) && fate != 1;
    EXPECT_TRUE(!once || net.most_repeated_data_frame() == 1) << "seed " << seed;
    if (schedule.failed()) continue;
    without += run.rounds_without_late();
  }
  if (sweeping()) return;
  EXPECT_GT(without, static_cast<int>(seeds_of_a_kind()));  // the schedules are none of nothing
  EXPECT_GT(joined, static_cast<int>(seeds_of_a_kind() / 8));
  EXPECT_GT(left, static_cast<int>(seeds_of_a_kind() / 8));
}

}  // namespace
}  // namespace isthmus::this_file
