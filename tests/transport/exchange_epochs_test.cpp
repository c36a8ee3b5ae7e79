// SPDX-License-Identifier: Apache-2.0
// Members that die, leave and come back on a hostile network. Whatever happens, everyone who lives
// gets every round's result; all who got one got the same, the naive mean over its contributors;
// and whoever lives to the end has contributed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/engine_net.h"
#include "transport/membership.h"
#include "transport/naive_mean.h"

namespace isthmus {
namespace {

using namespace std::chrono_literals;
using testing_support::contribution_of;
using testing_support::EngineNet;
using testing_support::Faults;
using testing_support::naive_mean;
using testing_support::result_of;

constexpr std::array kKinds = {ReductionKind::kReduce, ReductionKind::kGather,
                               ReductionKind::kCollect};

struct Plan {
  int members = 3;
  ReductionKind kind = ReductionKind::kReduce;
  std::string codec = "fp32";
  int rounds = 8;
};

/// A run of one round after another, two fragments, at most three rounds under way.
class ElasticRun {
 public:
  /// `patient`: waits for frames alone, never for a retry interval to pass.
  ElasticRun(const Plan& plan, EngineNet& net, bool patient)
      : plan_(plan),
        net_(net),
        patient_(patient),
        codec_(make_codec(plan.codec)),
        begun_(static_cast<std::size_t>(plan.members)),
        taken_(begun_) {}

  static SyncId id_of(int round) { return {FragmentId(round % 2), StepIndex(1 + round / 2)}; }

  /// One thing happens. RETURNS: false when all who live are through.
  bool advance() {
    bool finished = true;
    for (int m = 0; m < plan_.members; ++m) {
      if (net_.dead(m)) continue;
      const auto place = static_cast<std::size_t>(m);
      int& b = begun_[place];
      int& t = taken_[place];
      const bool held = held_ && id_of(b).sent.value() > *held_ && !entered_[m];
      const int rounds = m == leaver_ ? rounds_left_ : plan_.rounds;
      if (b < rounds && b < t + 3 && !held && net_.uniform() < 0.2) {
        net_.begin(m, contribution_of(codec_, Rank(m), size_of(b), id_of(b), plan_.kind));
        ++b;
      }
      if (t < b && net_.engine(m).ready(id_of(t))) {
        auto result = net_.engine(m).take(id_of(t));
        if (!result) {
          ADD_FAILURE() << "member " << m << " round " << t << ": " << result.error().what;
          return false;
        }
        results_[t][m] = *std::move(result);
        ++t;
      }
      finished = finished && t == rounds;
      for (const Epoch& epoch : net_.engine(m).take_epochs()) {
        epochs_[m] = epoch;
        if (epoch.joins || epoch.leaves) entered_[m] = true;
      }
      if (m == leaver_ && t == rounds && entered_[m]) go();
    }
    // What keeps all gets no time in which something could be asked for again.
    if (!finished && (net_.busy() || !patient_)) (void)net_.advance();
    return !finished;
  }
  /// Nobody begins a round sent after the furthest step begun before it knows of the joiner.
  void join(int member) {
    const std::int64_t after = hold();
    net_.revive(member);
    net_.admit(member, after);
    if (member == leaver_) {
      leaver_ = -1;
      left_ = member;
    }
    joined_round_ = first_after(after);
    begun_[static_cast<std::size_t>(member)] = joined_round_;
    taken_[static_cast<std::size_t>(member)] = joined_round_;
  }
  /// The same of one that goes. RETURNS: whether it goes before the last round.
  bool leave(int member) {
    const std::int64_t after = hold();
    net_.release(member, after);
    leaver_ = left_ = member;
    rounds_left_ = first_after(after);
    return rounds_left_ < plan_.rounds;
  }
  [[nodiscard]] bool has_left(int member) const {
    return member == leaver_ && net_.dead(member) &&
           taken_[static_cast<std::size_t>(member)] == rounds_left_;
  }
  void check(const std::string& where) const {
    for (const auto& [round, by_member] : results_) {
      const Reduced& first = by_member.begin()->second;
      for (const auto& [m, result] : by_member) {
        ASSERT_EQ(result.contributors, first.contributors) << where << " round " << round;
        ASSERT_EQ(result_of(*codec_, result),
                  naive_mean(*codec_, first.contributors, size_of(round), plan_.kind))
            << where << " round " << round << " member " << m;
      }
      for (int m = 0; m < plan_.members; ++m) {
        const bool away = is_away(m, round);
        if (away && m == left_) {
          ASSERT_THAT(first.contributors, ::testing::Not(::testing::Contains(Rank(m))))
              << where << " round " << round;
        }
        const bool was_there = m == left_ && round < rounds_left_;
        if ((!net_.dead(m) && !away) || was_there) {
          ASSERT_THAT(first.contributors, ::testing::Contains(Rank(m)))
              << where << " round " << round;
          ASSERT_TRUE(by_member.contains(m)) << where << " round " << round << " member " << m;
        }
      }
    }
  }
  /// ... to the others.
  [[nodiscard]] bool all_know_gone(int member) const {
    bool all = true;
    for (int m = 0; m < plan_.members; ++m) {
      const auto found = epochs_.find(m);
      all = all && (m == member || (found != epochs_.end() &&
                                    !found->second.live[static_cast<std::size_t>(member)]));
    }
    return all;
  }
  void joined(int member) { joiner_ = member; }
  [[nodiscard]] std::vector<int> contributors_of(int round) const {
    std::vector<int> ranks;
    for (const Rank rank : results_.at(round).begin()->second.contributors) {
      ranks.push_back(rank.value());
    }
    return ranks;
  }

 private:
  [[nodiscard]] bool is_away(int member, int round) const {
    if (member == left_ && round < rounds_left_) return false;
    return (member == joiner_ && round < joined_round_) || (member == left_ && member != joiner_);
  }
  /// RETURNS: the furthest step begun; nobody begins a round sent after it before it knows more.
  std::int64_t hold() {
    std::int64_t after = 0;
    for (int m = 0; m < plan_.members; ++m) {
      const int b = begun_[static_cast<std::size_t>(m)];
      if (b > 0) after = std::max(after, id_of(b - 1).sent.value());
    }
    held_ = after;
    entered_.clear();
    return after;
  }
  [[nodiscard]] int first_after(std::int64_t after) const {
    int first = 0;
    while (first < plan_.rounds && id_of(first).sent.value() <= after) ++first;
    return first;
  }
  /// Its rounds are over: it says goodbye, and once that is known, or was lost, its process ends.
  void go() {
    if (goodbye_ == 0) net_.leave(leaver_);
    if (++goodbye_ > 1 && (net_.engine(leaver_).all_left() || goodbye_ > 200)) {
      net_.kill(leaver_, 200ms);
    }
  }
  static std::size_t size_of(int round) {
    return 9000 + static_cast<std::size_t>(round % 3) * 4000;
  }

  const Plan plan_;
  EngineNet& net_;
  const bool patient_;
  std::shared_ptr<const Codec> codec_;
  std::vector<int> begun_, taken_;
  std::map<int, std::map<int, Reduced>> results_;  // by round, by member
  std::map<int, Epoch> epochs_;                    // the last one, by member
  std::map<int, bool> entered_;                    // the epoch that held all, by member
  std::optional<std::int64_t> held_;
  int leaver_ = -1;  // until it comes back
  int left_ = -1;    // the same for good
  int rounds_left_ = 0;
  int goodbye_ = 0;  // how long ago it said so
  int joiner_ = -1;
  int joined_round_ = 0;
};

Plan plan_of(std::uint64_t seed) {
  return {.members = 3 + static_cast<int>(seed % 3),
          .kind = kKinds[seed / 3 % 3],
          .codec = seed % 4 == 0 ? "int8:256" : "fp32"};
}

/// Every other network keeps order and loses nothing, so nothing may have to be asked for again.
bool keeps_all(std::uint64_t seed) { return seed % 2 == 0; }
Duration retry_of(std::uint64_t seed) { return keeps_all(seed) ? Duration(24h) : Duration(100ms); }

Faults faults_of(std::uint64_t seed) {
  if (keeps_all(seed)) return {.delay = 5ms, .per_kilobyte = 50us};
  return {.drop = 0.15, .repeat = 0.2, .damage = 0.05, .delay = 5ms, .jitter = 300ms};
}

constexpr std::uint64_t kSeeds = 150;
/// With --gtest_shuffle each repetition has seeds of its own: scripts/fault-sweep.
std::uint64_t first_seed() {
  if (!GTEST_FLAG_GET(shuffle)) return 0;
  return kSeeds * static_cast<std::uint64_t>(::testing::UnitTest::GetInstance()->random_seed());
}

TEST(ExchangeEpochs, ADeathCostsNoRoundAtWhateverMoment) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + kSeeds; ++seed) {
    const Plan plan = plan_of(seed);
    EngineNet net(plan.members, seed, faults_of(seed), true, 1, retry_of(seed));
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
    if (HasFailure()) return;
  }
}

TEST(ExchangeEpochs, WhoComesBackTakesPartInLaterRounds) {
  int joined = 0;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + kSeeds; ++seed) {
    Plan plan = plan_of(seed);
    plan.rounds = 14;
    EngineNet net(plan.members, seed, faults_of(seed), true, 1, retry_of(seed));
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
    if (HasFailure()) return;
    const std::vector<int> last = run.contributors_of(plan.rounds - 1);
    joined += back && std::ranges::find(last, victim) != last.end() ? 1 : 0;
  }
  EXPECT_GT(joined, static_cast<int>(kSeeds / 2));  // the others were through before
}

TEST(ExchangeEpochs, WhoLeavesEndsItsRoundsAndNobodyRepeatsAny) {
  int left = 0;
  int came_back = 0;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + kSeeds; ++seed) {
    Plan plan = plan_of(seed);
    plan.rounds = 14;
    EngineNet net(plan.members, seed, faults_of(seed), true, 1, retry_of(seed));
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
    if (HasFailure()) return;
    left += goes ? 1 : 0;
    came_back += back ? 1 : 0;
  }
  EXPECT_GT(left, static_cast<int>(kSeeds / 2));  // the others were at the last rounds before
  EXPECT_GT(came_back, static_cast<int>(kSeeds / 10));
}

TEST(ExchangeEpochs, NobodyLeavesTooFewBehind) {
  EngineNet net(3, 1, {}, true, 2);
  net.release(2, 5);
  Outbox out;
  EXPECT_FALSE(net.engine(0).release(Rank(2), 6, net.now(), out)) << "it leaves already";
  EXPECT_FALSE(net.engine(0).release(Rank(1), 6, net.now(), out)) << "one would be left";
}

TEST(ExchangeEpochs, WithTooFewLeftAllAreTold) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  EngineNet net(3, 1, {}, true, 3);
  const SyncId id{FragmentId(0), StepIndex(1)};
  net.begin(0, contribution_of(codec, Rank(0), 100, id, ReductionKind::kReduce));
  net.begin(1, contribution_of(codec, Rank(1), 100, id, ReductionKind::kReduce));
  net.kill(2);
  while (net.advance()) {
  }
  for (int m = 0; m < 2; ++m) {
    ASSERT_TRUE(net.engine(m).ready(id));
    const auto result = net.engine(m).take(id);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().kind, ExchangeError::Kind::kPeerLost);
    EXPECT_THAT(result.error().what, ::testing::HasSubstr("2 of 3 are too few"));
  }
}

// Only member 1 sees member 2 gone: its word counts, and member 2 learns of it.
TEST(ExchangeEpochs, WhoIsLeftOutIsTold) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  EngineNet net(3, 1, {}, true);
  const SyncId id{FragmentId(0), StepIndex(1)};
  for (int m = 0; m < 3; ++m) {
    net.begin(m, contribution_of(codec, Rank(m), 100, id, ReductionKind::kReduce));
  }
  net.lose(1, 2);
  while (net.advance()) {
  }
  for (int m = 0; m < 2; ++m) {
    ASSERT_TRUE(net.engine(m).ready(id));
    EXPECT_THAT(net.engine(m).take(id)->contributors, ::testing::ElementsAre(Rank(0), Rank(1)));
  }
  ASSERT_TRUE(net.engine(2).ready(id));
  EXPECT_EQ(net.engine(2).take(id).error().kind, ExchangeError::Kind::kEvicted);
  // What it begins without having heard, or nevertheless, is none of the others' business.
  const SyncId next{FragmentId(0), StepIndex(2)};
  for (int m = 2; m >= 0; --m) {
    net.begin(m, contribution_of(codec, Rank(m), 100, next, ReductionKind::kReduce));
  }
  while (net.advance()) {
  }
  EXPECT_EQ(net.engine(2).take(next).error().kind, ExchangeError::Kind::kEvicted);
  for (int m = 0; m < 2; ++m) {
    ASSERT_TRUE(net.engine(m).ready(next));
    EXPECT_TRUE(net.engine(m).take(next).has_value());
  }
}

TEST(ExchangeEpochs, NewsSurviveTheWireAndRubbishIsRefused) {
  EpochNews news(Membership(3, 4, true)
                     .without(Rank(1))
                     .leaving(Rank(2), 60)
                     .parted(Rank(2))
                     .with(Rank(1), 77));
  news.epoch.who = Rank(1);
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
  EXPECT_TRUE(read->membership.takes_part(Rank(2), StepIndex(60)));
  EXPECT_FALSE(read->membership.takes_part(Rank(2), StepIndex(61)));
  EXPECT_TRUE(read->membership.has_left(Rank(2)));
  EXPECT_FALSE(read->membership.takes_part(Rank(1), StepIndex(77)));
  EXPECT_FALSE(EpochNews::read(bytes, 4).has_value());
  for (std::size_t n = 0; n < bytes.size() - news.epoch.why.size(); ++n) {
    EXPECT_FALSE(EpochNews::read(std::span(bytes).first(n), 3).has_value()) << n;
  }
}

}  // namespace
}  // namespace isthmus
