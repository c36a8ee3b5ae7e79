// SPDX-License-Identifier: Apache-2.0
// Members that die and come back on a hostile network. Whatever happens, everyone who lives gets
// every round's result; all who got one got the same, the naive mean over its contributors; and
// whoever lives to the end has contributed.
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
      if (b < plan_.rounds && b < t + 3 && !held && net_.uniform() < 0.2) {
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
      finished = finished && t == plan_.rounds;
      for (const Epoch& epoch : net_.engine(m).take_epochs()) {
        epochs_[m] = epoch;
        if (epoch.joins) entered_[m] = true;
      }
    }
    // What keeps all gets no time in which something could be asked for again.
    if (!finished && (net_.busy() || !patient_)) (void)net_.advance();
    return !finished;
  }
  /// Nobody begins a round sent after the furthest step begun before it knows of the joiner.
  void join(int member) {
    std::int64_t after = 0;
    for (int m = 0; m < plan_.members; ++m) {
      const int b = begun_[static_cast<std::size_t>(m)];
      if (b > 0) after = std::max(after, id_of(b - 1).sent.value());
    }
    held_ = after;
    net_.revive(member);
    net_.admit(member, after);
    int first = 0;
    while (first < plan_.rounds && id_of(first).sent.value() <= after) ++first;
    begun_[static_cast<std::size_t>(member)] = first;
    taken_[static_cast<std::size_t>(member)] = first;
    joined_round_ = first;
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
        const bool late = begun_before_joining(m, round);
        if (!net_.dead(m) && !late) {
          ASSERT_THAT(first.contributors, ::testing::Contains(Rank(m)))
              << where << " round " << round;
          ASSERT_TRUE(by_member.contains(m)) << where << " round " << round << " member " << m;
        }
      }
    }
  }
  [[nodiscard]] const std::map<int, Epoch>& epochs() const { return epochs_; }
  void joined(int member) { joiner_ = member; }
  [[nodiscard]] std::vector<int> contributors_of(int round) const {
    std::vector<int> ranks;
    for (const Rank rank : results_.at(round).begin()->second.contributors) {
      ranks.push_back(rank.value());
    }
    return ranks;
  }

 private:
  [[nodiscard]] bool begun_before_joining(int member, int round) const {
    return member == joiner_ && round < joined_round_;
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
  std::map<int, bool> entered_;                    // the join's epoch, by member
  std::optional<std::int64_t> held_;
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
      bool all_know = true;
      for (int m = 0; m < plan.members; ++m) {
        const auto found = run.epochs().find(m);
        all_know =
            all_know && (m == victim || (found != run.epochs().end() &&
                                         !found->second.live[static_cast<std::size_t>(victim)]));
      }
      if (!back && all_know) {
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
  EpochNews news(Membership(3, 4, true).without(Rank(1)).with(Rank(1), 77));
  news.epoch.who = Rank(1);
  news.epoch.joins = true;
  news.epoch.after = 77;
  news.epoch.why = "back";
  news.committed = {{FragmentId(2), StepIndex(70)}};
  const std::vector<std::byte> bytes = news.write();
  const auto read = EpochNews::read(bytes, 3);
  ASSERT_TRUE(read.has_value()) << read.error();
  EXPECT_EQ(read->write(), bytes);
  EXPECT_EQ(read->epoch.number, 6u);
  EXPECT_EQ(read->membership.epoch_of(StepIndex(77)), 5u);
  EXPECT_EQ(read->membership.epoch_of(StepIndex(78)), 6u);
  EXPECT_FALSE(read->membership.takes_part(Rank(1), StepIndex(77)));
  EXPECT_FALSE(EpochNews::read(bytes, 4).has_value());
  for (std::size_t n = 0; n < bytes.size() - news.epoch.why.size(); ++n) {
    EXPECT_FALSE(EpochNews::read(std::span(bytes).first(n), 3).has_value()) << n;
  }
}

}  // namespace
}  // namespace isthmus
