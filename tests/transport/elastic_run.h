// SPDX-License-Identifier: Apache-2.0
// A run of rounds whose members die, leave and come back on a hostile network. Whatever happens,
// everyone who lives gets every round's result; all who got one got the same, the naive mean over
// its contributors; and whoever lives to the end has contributed.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sweep_seeds.h"
#include "test_weight.h"
#include "transport/engine_net.h"
#include "transport/naive_mean.h"

namespace isthmus::testing_support {

inline constexpr std::array kKinds = {ReductionKind::kReduce, ReductionKind::kGather,
                                      ReductionKind::kCollect};

struct Plan {
  int members = 3;
  ReductionKind kind = ReductionKind::kReduce;
  std::string codec = "fp32";
  int rounds = 8;
  std::vector<std::uint32_t> groups = {};  // of a reduce
  std::vector<std::uint32_t> shares = {};  // of its owners
  int fragments = 2;
  bool may_be_late = false;  // rounds have a deadline, and fragments one size each
};

/// A run of one round after another, at most three under way.
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

  [[nodiscard]] SyncId id_of(int round) const {
    return {FragmentId(round % plan_.fragments), StepIndex(1 + round / plan_.fragments)};
  }

  /// One thing happens. RETURNS: false when all who live are through.
  bool advance() {
    bool finished = true;
    ++happened_;
    for (int m = 0; m < plan_.members; ++m) {
      if (net_.dead(m)) continue;
      const auto place = static_cast<std::size_t>(m);
      int& b = begun_[place];
      int& t = taken_[place];
      const bool held = held_ && id_of(b).sent.value() > *held_ && !entered_[m];
      const int rounds = m == leaver_ ? rounds_left_ : plan_.rounds;
      const bool late = happened_ < late_until_[m];
      if (b < rounds && b < t + 3 && !held && !late && net_.uniform() < 0.2) {
        net_.begin(m, contribution_of(codec_, WorkerId(m), size_of(b), id_of(b), plan_.kind));
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
        // Who has missed that one leaves may hear only that it is gone.
        const bool about_leaver = left_ >= 0 && epoch.who == WorkerId(left_);
        if (epoch.joins || epoch.leaves || about_leaver) entered_[m] = true;
      }
      if (m == leaver_ && t == rounds && entered_[m]) go();
    }
    // What keeps all gets no time in which something could be asked for again.
    const bool due = plan_.may_be_late && net_.next() < net_.now() + 1h;
    if (!finished && (net_.busy() || !patient_ || due)) (void)net_.advance();
    return !finished;
  }
  /// From now on it begins nothing while so many things happen.
  void straggle(int member, int happenings) { late_until_[member] = happened_ + happenings; }
  /// Rounds that had a result without one that was late.
  [[nodiscard]] int rounds_without_late() const { return without_late_; }
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
  void check(const std::string& where) {
    std::map<std::pair<std::vector<WorkerId>, std::size_t>, std::vector<std::vector<float>>> means;
    for (const auto& [round, by_member] : results_) {
      const Reduced& first = by_member.begin()->second;
      std::vector<std::vector<float>>& mean = means[{first.contributors, size_of(round)}];
      if (mean.empty()) mean = means_of(first.contributors, size_of(round));
      const std::vector<float> values = result_of(*codec_, first);
      ASSERT_NE(std::ranges::find(mean, values), mean.end()) << where << " round " << round;
      for (const auto& [m, result] : by_member) {
        ASSERT_EQ(result.contributors, first.contributors) << where << " round " << round;
        ASSERT_EQ(result_of(*codec_, result), values)
            << where << " round " << round << " member " << m;
      }
      for (int m = 0; m < plan_.members; ++m) {
        const bool away = is_away(m, round);
        if (away && m == left_) {
          ASSERT_THAT(first.contributors, ::testing::Not(::testing::Contains(WorkerId(m))))
              << where << " round " << round;
        }
        const bool was_there = m == left_ && round < rounds_left_;
        if ((!net_.dead(m) && !away) || was_there) {
          const bool gave =
              std::ranges::find(first.contributors, WorkerId(m)) != first.contributors.end();
          ASSERT_TRUE(gave || plan_.may_be_late)
              << where << " round " << round << " is without member " << m;
          without_late_ += gave ? 0 : 1;
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
    for (const WorkerId rank : results_.at(round).begin()->second.contributors) {
      ranks.push_back(rank.value());
    }
    return ranks;
  }

 private:
  /// What a round's result may be. In groups it depends on who takes part without contributing,
  /// too, which no result tells: then one of several.
  [[nodiscard]] std::vector<std::vector<float>> means_of(const std::vector<WorkerId>& contributors,
                                                         std::size_t n) const {
    if (plan_.groups.empty()) return {naive_mean(*codec_, contributors, n, plan_.kind)};
    std::vector<std::vector<float>> means;
    for (unsigned set = 0; set < 1u << plan_.members; ++set) {
      std::vector<WorkerId> present;
      for (int m = 0; m < plan_.members; ++m) {
        const bool gives = std::ranges::count(contributors, WorkerId(m)) > 0;
        const bool is_there = (set >> m & 1u) != 0;
        if (gives && !is_there) present.clear();
        if (gives && !is_there) break;
        if (is_there) present.push_back(WorkerId(m));
      }
      const bool all_give = present.size() == contributors.size();
      if (present.empty() || (!all_give && !plan_.may_be_late)) continue;
      means.push_back(naive_mean_of_present(*codec_, contributors, plan_.groups, n, present));
    }
    return means;
  }
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
  int happened_ = 0;
  std::map<int, int> late_until_;  // by member
  int without_late_ = 0;
};

/// Of whichever of the other plans, with rounds that may be late.
inline Plan with_late(Plan plan) {
  plan.may_be_late = true;
  plan.fragments = 3;  // of one size each
  plan.rounds = 18;
  return plan;
}

inline Plan plan_of(std::uint64_t seed) {
  return {.members = 3 + static_cast<int>(seed % 3),
          .kind = kKinds[seed / 3 % 3],
          .codec = seed % 4 == 0 ? "int8:256" : "fp32"};
}

/// Three to six members in two or three groups, of which some have one.
inline Plan plan_in_groups(std::uint64_t seed) {
  Plan plan{.members = 3 + static_cast<int>(seed % 4),
            .codec = seed % 3 == 0 ? "int8:256" : "fp32"};
  const std::uint32_t groups = 2 + static_cast<std::uint32_t>(seed / 4 % 2);
  for (int m = 0; m < plan.members; ++m) {
    const auto place = static_cast<std::uint32_t>(m);
    plan.groups.push_back(seed / 8 % 2 == 0 ? place % groups : std::min(groups - 1, place / 2));
  }
  return plan;
}

/// Every other one in groups. Owners of unlike shares, some of which own nothing, as slow and
/// hidden ones do; of every fourth only one does.
inline Plan plan_in_shares(std::uint64_t seed) {
  Plan plan = seed % 2 == 0 ? plan_in_groups(seed / 2) : plan_of(seed);
  plan.kind = ReductionKind::kReduce;
  for (int m = 0; m < plan.members; ++m) {
    plan.shares.push_back(seed / 2 % 4 == 0 ? 0 : static_cast<std::uint32_t>(seed >> m) % 3);
  }
  const bool nobody = std::ranges::all_of(plan.shares, [](auto share) { return share == 0; });
  if (nobody) plan.shares[seed / 8 % plan.shares.size()] = 5;
  return plan;
}

/// Every other network keeps order and loses nothing, so nothing may have to be asked for again.
inline bool keeps_all(std::uint64_t seed) { return seed % 2 == 0; }
inline Duration retry_of(std::uint64_t seed) {
  return keeps_all(seed) ? Duration(24h) : Duration(100ms);
}

inline Faults faults_of(std::uint64_t seed) {
  if (keeps_all(seed)) return {.delay = 5ms, .per_kilobyte = 50us};
  return {.drop = 0.15, .repeat = 0.2, .damage = 0.05, .delay = 5ms, .jitter = 300ms};
}

/// Seeds of each kind of schedule.
inline std::uint64_t seeds_of_a_kind() { return by_weight<std::uint64_t>(20, 150); }

}  // namespace isthmus::testing_support
