// SPDX-License-Identifier: Apache-2.0
// Rounds that leave their commit to a later one, among members that may be lost (stepping_run.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/elastic_run.h"
#include "transport/stepping_run.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

SteppingPlan stepping_plan(std::uint64_t seed) {
  return {.members = 3 + static_cast<int>(seed % 3),
          .kind = seed / 3 % 2 == 0 ? ReductionKind::kReduce : ReductionKind::kGather,
          .commit_every = std::array<std::int64_t, 4>{2, 5, 7, 100}[seed / 2 % 4],
          .buckets = 1 + static_cast<int>(seed / 5 % 2)};
}

EngineNet stepping_net(const SteppingPlan& plan, std::uint64_t seed, bool hub) {
  return {plan.members, seed, faults_of(seed), true, 1, retry_of(seed), hub, {}, {}, {}, true};
}

class TakingBackSweep : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Coordinators, TakingBackSweep, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "Hub" : "FirstMember"; });

TEST_P(TakingBackSweep, WhoIsLeftGoesBackToOneStepAtWhateverMomentAMemberDies) {
  int back = 0;
  std::int64_t furthest = 0;
  for (const std::uint64_t seed : sweep_seeds(seeds_of_a_kind())) {
    const SweptSchedule schedule(seed);
    const SteppingPlan plan = stepping_plan(seed);
    EngineNet net = stepping_net(plan, seed, GetParam());
    SteppingRun run(plan, net, keeps_all(seed));
    const int first = GetParam() ? 0 : 1;
    const int victim =
        first + static_cast<int>(seed % static_cast<std::uint64_t>(plan.members - 1));
    const int second = victim == first ? first + 1 : first;
    const int moment = static_cast<int>(net.uniform() * 700);
    const bool two = seed % 4 == 0 && plan.members > 3;
    int happened = 0;
    while (run.advance()) {
      ASSERT_LT(++happened, 100000) << "seed " << seed;
      if (happened == moment) net.kill(victim, 200ms);
      if (two && happened == moment + 40) net.kill(second, 200ms);
    }
    run.check("seed " + std::to_string(seed));
    EXPECT_EQ(run.evicted(), 0);
    if (schedule.failed()) continue;
    back += run.times_back();
    furthest = std::max(furthest, run.furthest_back());
  }
  EXPECT_GT(back, static_cast<int>(seeds_of_a_kind() / 2));
  EXPECT_GT(furthest, 4);
}

TEST_P(TakingBackSweep, WhoComesBackTakesPartAfterAStepThatAllCommit) {
  int joined = 0;
  for (const std::uint64_t seed : sweep_seeds(seeds_of_a_kind())) {
    const SweptSchedule schedule(seed);
    SteppingPlan plan = stepping_plan(seed);
    plan.steps = 22;
    EngineNet net = stepping_net(plan, seed, GetParam());
    SteppingRun run(plan, net, keeps_all(seed));
    const int first = GetParam() ? 0 : 1;
    const int victim =
        first + static_cast<int>(seed % static_cast<std::uint64_t>(plan.members - 1));
    const int other = victim == first ? first + 1 : first;
    const int death = 10 + static_cast<int>(net.uniform() * 150);
    const bool another_dies = plan.members > 3 && seed % 2 == 0;
    std::optional<int> back;
    int happened = 0;
    while (run.advance()) {
      ASSERT_LT(++happened, 100000) << "seed " << seed;
      if (happened == death) net.kill(victim, 50ms);
      if (!back && run.all_know_gone(victim) && run.join(victim)) back = happened;
      if (back && another_dies && happened == *back + 30) net.kill(other, 200ms);
    }
    run.check("seed " + std::to_string(seed));
    EXPECT_EQ(run.evicted(), 0);
    joined += back ? 1 : 0;
  }
  EXPECT_GT(joined, static_cast<int>(seeds_of_a_kind() / 2));
}

TEST(TakingBackHubSweep, AHubMayDieAtWhateverMoment) {
  int back = 0;
  for (const std::uint64_t seed : sweep_seeds(seeds_of_a_kind())) {
    const SweptSchedule schedule(seed);
    const SteppingPlan plan = stepping_plan(seed);
    EngineNet net = stepping_net(plan, seed, true);
    SteppingRun run(plan, net, keeps_all(seed));
    const int victim = static_cast<int>(seed / 7 % static_cast<std::uint64_t>(plan.members));
    const int death = seed % 5 < 3 ? static_cast<int>(net.uniform() * 500) : -1;
    int next = static_cast<int>(net.uniform() * 300);
    if (seed % 2 == 1) net.kill_hub_at_record(1 + static_cast<std::size_t>(net.uniform() * 4));
    int happened = 0, died_at = 0;
    while (run.advance()) {
      ASSERT_LT(++happened, 100000) << "seed " << seed;
      if (happened == death) net.kill(victim, 200ms);
      if (happened == next && !net.dead(net.hub())) net.kill(net.hub(), 200ms);
      if (net.dead(net.hub()) && died_at == 0) died_at = happened;
      if (died_at > 0 && happened > died_at + 60) {
        net.revive_hub();
        died_at = 0;
        if (seed % 4 != 0) next = happened + 1 + static_cast<int>(net.uniform() * 300);
      }
    }
    run.check("seed " + std::to_string(seed));
    EXPECT_EQ(run.evicted(), 0);
    back += run.times_back();
  }
  EXPECT_GT(back, 0);
}

// The digest of a whole stretch is compared at its commit: who has another one is left out, and
// what its values were used for is taken back.
TEST(TakingBack, WhoDiffersIsLeftOutAndTheOthersTakeItsStepsAgain) {
  const SteppingPlan plan{.members = 3, .steps = 12, .commit_every = 4};
  EngineNet net = stepping_net(plan, 2, false);
  bool differs = false;
  net.forge = [&](int from, const FrameBytes& bytes) {
    const Expected<Frame, FrameError> frame = parse_frame(*bytes);
    if (from != 2 || frame->header.kind != FrameKind::kDone ||
        frame->header.id.sent != StepIndex(8)) {
      return bytes;
    }
    differs = true;
    std::vector<std::byte> payload(frame->payload.begin(), frame->payload.end());
    payload.front() ^= std::byte{1};
    return make_frame(frame->header, payload);
  };
  SteppingRun run(plan, net, true);
  int happened = 0;
  while (run.advance()) ASSERT_LT(++happened, 100000);
  run.check("after a difference");
  EXPECT_TRUE(differs);
  EXPECT_EQ(run.evicted(), 1);
  EXPECT_EQ(run.contributors(0)[3].size(), 3u);
  EXPECT_EQ(run.contributors(0)[4].size(), 2u) << "steps 5 to 8 are taken again";
  EXPECT_EQ(run.furthest_back(), 3) << "the step that commits is not over";
}

// Of a step's two rounds one fails when a member dies, by which the other one is taken back; so the
// failed one comes again. What has failed has failed: who waits for it ends, with its cause.
TEST_P(TakingBackSweep, ARoundThatHasFailedFailsWhenItComesAgain) {
  int failed_again = 0;
  for (const std::uint64_t seed : sweep_seeds(seeds_of_a_kind())) {
    const SweptSchedule schedule(seed);
    SteppingPlan plan = stepping_plan(seed);
    plan.buckets = 2;
    EngineNet net = stepping_net(plan, seed, GetParam());
    SteppingRun run(plan, net, keeps_all(seed));
    run.may_fail = true;
    const int coordinator = GetParam() ? net.hub() : 0;
    const int victim = plan.members - 1, accuser = 1;
    const int moment = 10 + static_cast<int>(net.uniform() * 300);
    int happened = 0;
    while (run.advance()) {
      ASSERT_LT(++happened, 100000) << "seed " << seed;
      if (happened != moment || run.step_of(accuser) == plan.steps) continue;
      const FrameHeader abort{
          .kind = FrameKind::kAbort,
          .epoch = net.engine(accuser).members().membership().number(),
          .id = {FragmentId(seed % 4 == 0 ? 0 : 1), StepIndex(run.step_of(accuser) + 1)},
          .part = 1,
          .offset = static_cast<std::uint64_t>(ExchangeError::Kind::kDiverged)};
      net.deliver(accuser, coordinator, make_frame(abort));
      net.kill(victim, seed % 2 == 0 ? 0ms : 20ms);
    }
    failed_again += run.failed_again();
  }
  EXPECT_GT(failed_again, 0);
}

// Nothing of a step that is over is begun again, and what is begun until the member has gone back
// takes place nowhere.
TEST(TakingBack, NothingCountsUntilTheMemberHasGoneBack) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  EngineNet net = stepping_net({.members = 3}, 2, false);
  const auto begin = [&](int m, std::int64_t t, bool commit) {
    Contribution mine = contribution_of(codec, WorkerId(m), 900, {FragmentId(0), StepIndex(t)},
                                        ReductionKind::kReduce);
    mine.commit = commit;
    net.begin(m, std::move(mine));
  };
  const auto settle = [&] {
    while (net.busy()) (void)net.advance();
  };
  for (const std::int64_t t : {1, 2}) {
    for (int m = 0; m < 3; ++m) begin(m, t, t == 1);
    settle();
    for (int m = 0; m < 3; ++m) {
      ASSERT_TRUE(net.engine(m).take({FragmentId(0), StepIndex(t)}).has_value());
      EXPECT_EQ(net.engine(m).rollback().uncommitted(), t == 2);
    }
  }
  net.kill(2);
  settle();
  for (const int m : {0, 1}) {
    EXPECT_TRUE(net.engine(m).rollback().uncommitted());
    begin(m, 3, true);
  }
  settle();
  for (const int m : {0, 1}) {
    const auto third = net.engine(m).take({FragmentId(0), StepIndex(3)});
    ASSERT_FALSE(third.has_value());
    EXPECT_EQ(third.error().kind, ExchangeError::Kind::kTakenBack);
    EXPECT_THAT(third.error().what, ::testing::HasSubstr("since step 1"));
    EXPECT_EQ(net.engine(m).rollback().go_back(), StepIndex(1));
    EXPECT_FALSE(net.engine(m).rollback().uncommitted());
  }
  begin(0, 2, true);  // the other one has yet to
  settle();
  EXPECT_FALSE(net.engine(0).ready({FragmentId(0), StepIndex(2)}));
  begin(1, 2, true);
  settle();
  for (const int m : {0, 1}) {
    const auto second = net.engine(m).take({FragmentId(0), StepIndex(2)});
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(second->contributors, (std::vector{WorkerId(0), WorkerId(1)}));
  }
}

}  // namespace
}  // namespace isthmus::this_file
