// SPDX-License-Identifier: Apache-2.0
// Members that die, leave and come back (elastic_run.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "transport/elastic_run.h"
#include "transport/exchange/membership.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

enum class Owners { kDirect, kInGroups, kInShares, kDirectAndBounded };

class ExchangeEpochSweep : public ::testing::TestWithParam<Owners> {
 protected:
  static Plan plan(std::uint64_t seed) {
    return GetParam() == Owners::kInShares   ? plan_in_shares(seed)
           : GetParam() == Owners::kInGroups ? plan_in_groups(seed)
                                             : plan_of(seed);
  }
  static EngineNet net(const Plan& plan, std::uint64_t seed) {
    const bool bounded = GetParam() == Owners::kDirectAndBounded;
    return {
        plan.members, seed,        faults_of(seed),
        true,         1,           retry_of(seed),
        false,        plan.groups, plan.shares,
        {},           false,       !bounded ? kNoBound : seed % 4 == 1 ? 40000 : std::size_t{1}};
  }
};
INSTANTIATE_TEST_SUITE_P(OneLevelAndTwo, ExchangeEpochSweep,
                         ::testing::Values(Owners::kDirect, Owners::kInGroups, Owners::kInShares,
                                           Owners::kDirectAndBounded),
                         [](const auto& each) {
                           return each.param == Owners::kInShares           ? "InShares"
                                  : each.param == Owners::kInGroups         ? "InGroups"
                                  : each.param == Owners::kDirectAndBounded ? "DirectAndBounded"
                                                                            : "Direct";
                         });

TEST_P(ExchangeEpochSweep, ADeathCostsNoRoundAtWhateverMoment) {
  for (const std::uint64_t seed : sweep_seeds(seeds_of_a_kind())) {
    const SweptSchedule schedule(seed);
    const Plan plan = ExchangeEpochSweep::plan(seed);
    EngineNet net = ExchangeEpochSweep::net(plan, seed);
    ElasticRun run(plan, net, keeps_all(seed));
    const int victim = 1 + static_cast<int>(seed % static_cast<std::uint64_t>(plan.members - 1));
    const int second = victim == 1 ? 2 : 1;
    const int moment = static_cast<int>(net.uniform() * 250);
    const bool two = seed % 5 == 0 && plan.members > 3;
    int happened = 0;
    while (run.advance()) {
      ASSERT_LT(++happened, 100000) << "seed " << seed;
      if (happened == moment) net.kill(victim, 200ms);
      if (two && happened == moment + 40) net.kill(second, 200ms);
    }
    run.check("seed " + std::to_string(seed));
    if (schedule.failed()) continue;
  }
}

TEST_P(ExchangeEpochSweep, WhoComesBackTakesPartInLaterRounds) {
  int joined = 0;
  for (const std::uint64_t seed : sweep_seeds(seeds_of_a_kind())) {
    const SweptSchedule schedule(seed);
    Plan plan = ExchangeEpochSweep::plan(seed);
    plan.rounds = 14;
    EngineNet net = ExchangeEpochSweep::net(plan, seed);
    ElasticRun run(plan, net, keeps_all(seed));
    const int victim = 1 + static_cast<int>(seed % static_cast<std::uint64_t>(plan.members - 1));
    const int death = 10 + static_cast<int>(net.uniform() * 60);
    std::optional<int> back;
    int happened = 0;
    while (run.advance()) {
      ASSERT_LT(++happened, 100000) << "seed " << seed;
      if (happened == death) net.kill(victim, 50ms);
      if (!back && run.all_know_gone(victim)) {
        back = happened;
        run.joined(victim);
        if (seed % 4 < 2) net.slow(0, victim, 300ms);  // others' frames overtake the news
        run.join(victim);
      }
    }
    run.check("seed " + std::to_string(seed));
    if (schedule.failed()) continue;
    const std::vector<int> last = run.contributors_of(plan.rounds - 1);
    joined += back && std::ranges::find(last, victim) != last.end() ? 1 : 0;
  }
  EXPECT_GT(joined, static_cast<int>(seeds_of_a_kind() / 2));  // the others were through before
}

TEST_P(ExchangeEpochSweep, WhoLeavesEndsItsRoundsAndNobodyRepeatsAny) {
  int left = 0;
  int came_back = 0;
  for (const std::uint64_t seed : sweep_seeds(seeds_of_a_kind())) {
    const SweptSchedule schedule(seed);
    Plan plan = ExchangeEpochSweep::plan(seed);
    plan.rounds = 14;
    EngineNet net = ExchangeEpochSweep::net(plan, seed);
    ElasticRun run(plan, net, keeps_all(seed));
    const int leaver = 1 + static_cast<int>(seed % static_cast<std::uint64_t>(plan.members - 1));
    const int victim = leaver == 1 ? 2 : 1;
    const int moment = static_cast<int>(net.uniform() * 100);
    const bool somebody_dies = seed % 5 == 0 && plan.members > 3;
    bool goes = false, back = false;
    int happened = 0;
    while (run.advance()) {
      ASSERT_LT(++happened, 100000) << "seed " << seed;
      if (happened == moment) goes = run.leave(leaver);
      if (happened == moment + 20 && somebody_dies) net.kill(victim, 200ms);
      const bool gone = run.has_left(leaver) && !somebody_dies && run.all_know_gone(leaver);
      if (gone && !back && seed % 3 == 0) {
        back = true;
        run.joined(leaver);
        run.join(leaver);
      }
    }
    run.check("seed " + std::to_string(seed));
    // Links to a newcomer may lose what is early.
    const bool once = keeps_all(seed) && !somebody_dies && !back;
    EXPECT_TRUE(!once || net.most_repeated_data_frame() == 1) << "seed " << seed;
    if (schedule.failed()) continue;
    left += goes ? 1 : 0;
    came_back += back ? 1 : 0;
  }
  EXPECT_GT(left,
            static_cast<int>(seeds_of_a_kind() / 2));  // the others were at the last rounds before
  EXPECT_GT(came_back, static_cast<int>(seeds_of_a_kind() / 10));
}

TEST(ExchangeEpochs, NobodyLeavesTooFewBehind) {
  EngineNet net(3, 1, {}, true, 2);
  net.release(2, 5);
  Outbox out;
  EXPECT_FALSE(net.engine(0).release(WorkerId(2), 6, net.now(), out)) << "it leaves already";
  EXPECT_FALSE(net.engine(0).release(WorkerId(1), 6, net.now(), out)) << "one would be left";
}

// That too few are there to go on is the program's affair: what was begun ends, however few.
TEST(ExchangeEpochs, WithTooFewLeftWhatIsOpenEnds) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  EngineNet net(3, 1, {}, true, 3);
  const SyncId id{FragmentId(0), StepIndex(1)};
  net.begin(0, contribution_of(codec, WorkerId(0), 100, id, ReductionKind::kReduce));
  net.begin(1, contribution_of(codec, WorkerId(1), 100, id, ReductionKind::kReduce));
  net.kill(2);
  while (net.advance()) {
  }
  for (int m = 0; m < 2; ++m) {
    ASSERT_TRUE(net.engine(m).ready(id));
    const auto result = net.engine(m).take(id);
    ASSERT_TRUE(result.has_value()) << result.error().what;
    EXPECT_THAT(result->contributors, ::testing::ElementsAre(WorkerId(0), WorkerId(1)));
  }
}

// Only member 1 sees member 2 gone: its word counts, and member 2 learns of it.
TEST(ExchangeEpochs, WhoIsLeftOutIsTold) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  EngineNet net(3, 1, {}, true);
  const SyncId id{FragmentId(0), StepIndex(1)};
  for (int m = 0; m < 3; ++m) {
    net.begin(m, contribution_of(codec, WorkerId(m), 100, id, ReductionKind::kReduce));
  }
  net.lose(1, 2);
  while (net.advance()) {
  }
  for (int m = 0; m < 2; ++m) {
    ASSERT_TRUE(net.engine(m).ready(id));
    EXPECT_THAT(net.engine(m).take(id)->contributors,
                ::testing::ElementsAre(WorkerId(0), WorkerId(1)));
  }
  ASSERT_TRUE(net.engine(2).ready(id));
  EXPECT_EQ(net.engine(2).take(id).error().kind, ExchangeError::Kind::kEvicted);
  // What it begins without having heard, or nevertheless, is none of the others' business.
  const SyncId next{FragmentId(0), StepIndex(2)};
  for (int m = 2; m >= 0; --m) {
    net.begin(m, contribution_of(codec, WorkerId(m), 100, next, ReductionKind::kReduce));
  }
  while (net.advance()) {
  }
  EXPECT_EQ(net.engine(2).take(next).error().kind, ExchangeError::Kind::kEvicted);
  for (int m = 0; m < 2; ++m) {
    ASSERT_TRUE(net.engine(m).ready(next));
    EXPECT_TRUE(net.engine(m).take(next).has_value());
  }
}

/// All have begun a round, and some get no values to others.
class GivingUp {
 public:
  GivingUp(int members, bool hub) : net_(members, 1, {}, true, 1, 100ms, hub), members_(members) {
    const std::shared_ptr<const Codec> codec = make_codec("fp32");
    for (int m = 0; m < members; ++m) {
      net_.begin(m, contribution_of(codec, WorkerId(m), kValues, kId, ReductionKind::kReduce));
    }
  }
  /// RETURNS: who has no result of it.
  std::vector<int> without_result() {
    while (net_.advance()) {
    }
    std::vector<int> out;
    for (int m = 0; m < members_; ++m) {
      EXPECT_TRUE(net_.engine(m).ready(kId)) << m;
      if (!net_.engine(m).take(kId)) out.push_back(m);
    }
    return out;
  }
  EngineNet& net() { return net_; }

 private:
  static constexpr SyncId kId{FragmentId(0), StepIndex(1)};
  static constexpr std::size_t kValues = 8 * kTileValues;  // everyone owns some
  EngineNet net_;
  int members_;
};
std::vector<int> left_out_for(int members, bool hub,
                              const std::vector<std::pair<int, int>>& stalled) {
  GivingUp run(members, hub);
  for (const auto& [from, to] : stalled) run.net().give_up(from, to);
  return run.without_result();
}

// Of whose values all vanish, and to whom all vanish, one member goes, whoever reports it first.
TEST(ExchangeEpochs, WhoseWayIsAtFaultGoesAndNobodyElse) {
  using ::testing::ElementsAre;
  for (const bool hub : {false, true}) {
    EXPECT_THAT(left_out_for(4, hub, {{3, 1}, {3, 2}}), ElementsAre(3)) << "its way out";
    EXPECT_THAT(left_out_for(4, hub, {{1, 3}, {2, 3}}), ElementsAre(3)) << "its way in";
    EXPECT_THAT(left_out_for(4, hub, {{1, 3}, {3, 1}, {2, 3}, {3, 2}}), ElementsAre(3)) << "both";
    EXPECT_THAT(left_out_for(4, hub, {{2, 1}}), ElementsAre(2)) << "of one pair the sender";
  }
  EXPECT_THAT(left_out_for(4, false, {{3, 1}, {3, 2}, {3, 0}}), ElementsAre(3));
  EXPECT_THAT(left_out_for(4, true, {{0, 1}, {0, 2}, {0, 3}}), ElementsAre(0)) << "no coordinator";
}

TEST(ExchangeEpochs, AFirstMemberWhoseValuesReachNobodyLeavesOutNobody) {
  GivingUp run(4, false);
  const std::uint32_t epoch = run.net().engine(0).members().membership().number();
  for (const int peer : {1, 2, 3}) run.net().give_up(0, peer);
  EXPECT_THAT(run.without_result(), ::testing::SizeIs(4));
  EXPECT_EQ(run.net().engine(0).members().membership().number(), epoch);
}

// Member 2 stood still: it is told so when it wakes up, and says it to the coordinator first.
TEST(ExchangeEpochs, WhoIsGivenUpForGoodGoesThoughItSpeaksFirst) {
  for (const bool hub : {false, true}) {
    GivingUp run(4, hub);
    run.net().give_up(1, 2, LossCause::kGone);
    EXPECT_THAT(run.without_result(), ::testing::ElementsAre(2));
  }
}

// Links to the next process of member 2 stand before the news that the former one is gone, and that
// it has joined, have come: nobody may take it for lost.
TEST(ExchangeEpochs, ANextProcessMayBeFasterThanTheNewsOfTheFormerOne) {
  const auto engine = [](int self) {
    return ExchangeEngine({.self = WorkerId(self), .members = 3, .exchange = {.elastic = true}});
  };
  ExchangeEngine first = engine(0), member = engine(1);
  Outbox news, out;
  first.lose(WorkerId(2), "killed", TimePoint{}, news);
  first.exclude(WorkerId(2), "killed", TimePoint{}, news);
  first.welcome_back(WorkerId(2), TimePoint{}, news);
  ASSERT_TRUE(first.admit(WorkerId(2), 5, TimePoint{}, news));
  member.lose(WorkerId(2), "killed", TimePoint{}, out);
  member.welcome_back(WorkerId(2), TimePoint{}, out);
  for (const Outgoing& each : news) {
    if (each.to == WorkerId(1)) member.receive(WorkerId(0), each.frame, TimePoint{}, out);
  }
  ASSERT_EQ(member.members().membership().number(), 2u);
  const SyncId id{FragmentId(0), StepIndex(6)};
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const SharedContribution contribution =
      share(contribution_of(codec, WorkerId(1), 100, id, ReductionKind::kReduce));
  member.begin(Round(contribution, member.rounds().place(id)), true, contribution, TimePoint{},
               out);
  for (const Outgoing& each : out) {
    EXPECT_NE(parse_frame(*each.frame)->header.kind, FrameKind::kGone);
  }
}

TEST(ExchangeEpochs, NewsSurviveTheWireAndRubbishIsRefused) {
  EpochNews news(Membership(3, 4, true)
                     .without(WorkerId(1))
                     .leaving(WorkerId(2), 60)
                     .parted(WorkerId(2))
                     .with(WorkerId(1), 77));
  news.epoch.who = WorkerId(1);
  news.epoch.joins = true;
  news.epoch.after = 77;
  news.epoch.why = "back";
  news.committed = {{FragmentId(2), StepIndex(70)}};
  const std::vector<std::byte> bytes = news.write();
  const auto read = EpochNews::read(bytes, 3);
  ASSERT_TRUE(read.has_value()) << read.error();
  EXPECT_EQ(read->write(), bytes);
  EXPECT_EQ(read->epoch.number, 8u);
  EXPECT_EQ(read->membership.epoch_of(StepIndex(60)), 5u);
  EXPECT_EQ(read->membership.epoch_of(StepIndex(61)), 6u);
  EXPECT_EQ(read->membership.epoch_of(StepIndex(77)), 6u);
  EXPECT_EQ(read->membership.epoch_of(StepIndex(78)), 8u);
  EXPECT_TRUE(read->membership.takes_part(WorkerId(2), StepIndex(60)));
  EXPECT_FALSE(read->membership.takes_part(WorkerId(2), StepIndex(61)));
  EXPECT_TRUE(read->membership.has_left(WorkerId(2)));
  EXPECT_FALSE(read->membership.takes_part(WorkerId(1), StepIndex(77)));
  EXPECT_FALSE(EpochNews::read(bytes, 4).has_value());
  for (std::size_t n = 0; n < bytes.size() - news.epoch.why.size(); ++n) {
    EXPECT_FALSE(EpochNews::read(std::span(bytes).first(n), 3).has_value()) << n;
  }
}

}  // namespace
}  // namespace isthmus::this_file
