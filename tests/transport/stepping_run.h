// SPDX-License-Identifier: Apache-2.0
// A run of a method that exchanges every step and commits every few, whose members die, come back
// and differ on a hostile network (engine_net.h). A member's weights take in the mean of each step;
// its contribution depends on them, so one that went on from anything else would show. Whatever
// happens, each step counts once, all of a stretch between two commits are of the same members,
// and the weights are those of a plain loop over these.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sweep_seeds.h"
#include "transport/engine_net.h"
#include "transport/naive_mean.h"

namespace isthmus::testing_support {

struct SteppingPlan {
  int members = 3;
  ReductionKind kind = ReductionKind::kReduce;
  std::int64_t steps = 14;
  std::int64_t commit_every = 5;
  int buckets = 2;
};

class SteppingRun {
 public:
  using Weights = std::vector<float>;
  /// `patient`: waits for frames alone, never for a retry interval to pass.
  SteppingRun(const SteppingPlan& plan, EngineNet& net, bool patient)
      : plan_(plan), net_(net), patient_(patient) {
    for (int m = 0; m < plan.members; ++m) members_.push_back({.copy = initial(), .w = weights()});
  }

  /// One thing happens. RETURNS: false when all who live are through.
  bool advance() {
    bool finished = true;
    for (int m = 0; m < plan_.members; ++m) {
      if (net_.dead(m)) continue;
      for (const Epoch& epoch : net_.engine(m).take_epochs()) {
        if (epoch.joins) at(m).entered = true;
        at(m).last = epoch;
      }
      if (m == joiner_ && !at(m).takes_part) {
        take_over(m);
      } else if (net_.uniform() < 0.5) {
        act(m);
      }
      finished = finished && at(m).step == plan_.steps && !at(m).committing;
    }
    if (!finished && (net_.busy() || !patient_)) (void)net_.advance();
    return !finished;
  }

  /// `member`, whom all know to be gone, takes part after a step that nobody has ended, and that
  /// all commit. RETURNS: false where that is the last one.
  bool join(int member) {
    std::int64_t after = 0;
    for (int m = 0; m < plan_.members; ++m) {
      if (!net_.dead(m)) after = std::max(after, at(m).step + 1);
    }
    if (after >= plan_.steps) return false;
    for (Member& each : members_) each.entered = false;
    joined_after_ = after;
    meets_.insert(after);
    net_.revive(member);
    net_.admit(member, joined_after_);
    at(member) = {.copy = initial(), .w = weights(), .takes_part = false};
    joiner_ = member;
    return true;
  }
  /// Those that were told that they are left out; their processes have ended.
  [[nodiscard]] int evicted() const { return evicted_; }
  /// Rounds may fail, and with them whoever takes their results.
  bool may_fail = false;
  [[nodiscard]] int failed() const { return failed_; }
  /// ... that had gone back before.
  [[nodiscard]] int failed_again() const { return failed_again_; }
  [[nodiscard]] bool all_know_gone(int member) const {
    bool all = true;
    for (int m = 0; m < plan_.members; ++m) {
      const std::optional<Epoch>& last = members_[static_cast<std::size_t>(m)].last;
      const bool knows = last && !last->live[static_cast<std::size_t>(member)];
      all = all && (m == member || net_.dead(m) || knows);
    }
    return all;
  }
  /// How often a member went back, and over how many steps at most.
  [[nodiscard]] int times_back() const { return times_back_; }
  [[nodiscard]] std::int64_t furthest_back() const { return furthest_back_; }
  [[nodiscard]] std::int64_t step_of(int member) const {
    return members_[static_cast<std::size_t>(member)].step;
  }
  [[nodiscard]] const std::vector<std::vector<WorkerId>>& contributors(int member) const {
    return members_[static_cast<std::size_t>(member)].contributors;
  }

  void check(const std::string& where) {
    const Member* first = nullptr;
    for (int m = 0; m < plan_.members; ++m) {
      if (net_.dead(m)) continue;
      const Member& each = at(m);
      ASSERT_EQ(each.step, plan_.steps) << where << " member " << m;
      ASSERT_EQ(each.copy.step, plan_.steps) << where << " member " << m;
      if (first == nullptr) first = &each;
      ASSERT_EQ(each.contributors, first->contributors) << where << " member " << m;
      ASSERT_EQ(each.w, first->w) << where << " member " << m;
      const auto& last = each.contributors.back();
      ASSERT_THAT(last, ::testing::Contains(WorkerId(m))) << where << " member " << m;
    }
    ASSERT_NE(first, nullptr) << where;
    Weights w = weights();
    for (std::int64_t t = 1; t <= plan_.steps; ++t) {
      const std::vector<WorkerId>& who = first->contributors[static_cast<std::size_t>(t - 1)];
      const bool begins = (t - 1) % plan_.commit_every == 0 || meets_.contains(t - 1);
      ASSERT_TRUE(begins || who == first->contributors[static_cast<std::size_t>(t - 2)])
          << where << ": two kinds of members between two commits, step " << t;
      w = after_step(w, who);
    }
    ASSERT_EQ(first->w, w) << where;
  }

 private:
  struct Copy {
    std::int64_t step = 0;
    Weights w;
    std::vector<std::vector<WorkerId>> contributors;
  };
  struct Member {
    Copy copy = {};
    Weights w = {};
    std::vector<std::vector<WorkerId>> contributors = {};  // by step
    std::int64_t step = 0;                                 // steps taken
    int begun = 0, taken = 0;                              // rounds of the next one
    std::vector<Weights> means = {};
    bool committing = false;  // by a round of its own, after `step`
    bool entered = false;     // the epoch that held all
    bool takes_part = true;
    bool went_back = false;
    std::optional<Epoch> last = {};
  };

  [[nodiscard]] Member& at(int m) { return members_[static_cast<std::size_t>(m)]; }
  [[nodiscard]] static std::size_t size_of(int bucket) { return bucket == 0 ? 5000 : 300; }
  [[nodiscard]] Weights weights() const {
    std::size_t n = 0;
    for (int b = 0; b < plan_.buckets; ++b) n += size_of(b);
    return Weights(n, 0.25f);
  }
  [[nodiscard]] Copy initial() const { return {.step = 0, .w = weights(), .contributors = {}}; }
  [[nodiscard]] Weights vector_of(const Weights& w, WorkerId rank, int bucket) const {
    const std::size_t begin = bucket == 0 ? 0 : size_of(0);
    Weights x = test_vector(rank, size_of(bucket));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += 0.5f * w[begin + i] * w[begin + i];
    return x;
  }
  [[nodiscard]] Weights after_step(const Weights& w, const std::vector<WorkerId>& who) const {
    Weights next = w;
    std::size_t at = 0;
    for (int b = 0; b < plan_.buckets; ++b) {
      Weights mean(size_of(b), 0.0f);
      for (const WorkerId rank : who) {
        const Weights x = vector_of(w, rank, b);
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += x[i];
      }
      for (const float sum : mean) {
        next[at] -= 0.1f * (sum / static_cast<float>(who.size()));
        ++at;
      }
    }
    return next;
  }

  void act(int m) {
    Member& self = at(m);
    const SyncId commit{FragmentId(plan_.buckets), StepIndex(self.step)};
    if (self.committing) {
      if (!net_.engine(m).ready(commit)) return;
      if (take(m, commit)) self.committing = false;
      if (!self.committing && at(m).step == commit.sent.value()) keep(m);
      return;
    }
    if (self.step == plan_.steps) return;
    const StepIndex t(self.step + 1);
    const bool held = joiner_ >= 0 && t.value() > joined_after_ && !self.entered;
    if (self.begun < plan_.buckets && !held) {
      const bool last = self.begun + 1 == plan_.buckets;
      net_.begin(
          m, contribution(vector_of(self.w, WorkerId(m), self.begun), {FragmentId(self.begun), t},
                          WorkerId(m), last && t.value() % plan_.commit_every == 0));
      ++self.begun;
      return;
    }
    const SyncId next{FragmentId(self.taken), t};
    if (self.taken == self.begun || !net_.engine(m).ready(next)) return;
    std::optional<Reduced> mean = take(m, next);
    if (!mean) return;
    if (self.taken == 0) self.contributors.push_back(mean->contributors);
    EXPECT_EQ(self.contributors.back(), mean->contributors) << "member " << m;
    self.means.push_back(std::move(mean->values));
    if (++self.taken == plan_.buckets) end_step(m);
  }
  void end_step(int m) {
    Member& self = at(m);
    std::size_t at_value = 0;
    for (const Weights& mean : self.means) {
      for (const float value : mean) self.w[at_value++] -= 0.1f * value;
    }
    ++self.step;
    self.begun = self.taken = 0;
    self.means.clear();
    const bool meets = meets_.contains(self.step) || self.step == plan_.steps;
    if (!net_.engine(m).rollback().uncommitted()) {
      keep(m);
    } else if (meets) {
      net_.begin(m, contribution({}, {FragmentId(plan_.buckets), StepIndex(self.step)}, WorkerId(m),
                                 true));
      self.committing = true;
    }
  }
  void keep(int m) {
    EXPECT_FALSE(net_.engine(m).rollback().uncommitted()) << "member " << m;
    at(m).copy = {at(m).step, at(m).w, at(m).contributors};
  }
  /// RETURNS: nothing where it was taken back; the member has gone back then.
  std::optional<Reduced> take(int m, const SyncId& id) {
    auto result = net_.engine(m).take(id);
    if (result) return *std::move(result);
    if (result.error().kind != ExchangeError::Kind::kTakenBack) {
      const bool evicted = result.error().kind == ExchangeError::Kind::kEvicted;
      EXPECT_TRUE(evicted || may_fail) << result.error().what;
      ++(evicted ? evicted_ : failed_);
      failed_again_ += !evicted && at(m).went_back ? 1 : 0;
      net_.kill(m);
      return std::nullopt;
    }
    Member& self = at(m);
    const std::int64_t committed = net_.engine(m).rollback().go_back().value();
    // Who has joined has nothing of before.
    EXPECT_TRUE(self.copy.step == committed || (m == joiner_ && self.copy.step == joined_after_))
        << "member " << m << ": " << self.copy.step << " and " << committed;
    ++times_back_;
    self.went_back = true;
    furthest_back_ = std::max(furthest_back_, self.step - self.copy.step);
    self.step = self.copy.step;
    self.w = self.copy.w;
    self.contributors = self.copy.contributors;
    self.begun = self.taken = 0;
    self.means.clear();
    self.committing = false;
    return std::nullopt;
  }
  /// From whoever has committed the step after which it takes part: nobody can be further.
  void take_over(int m) {
    for (int donor = 0; donor < plan_.members; ++donor) {
      if (donor == m || net_.dead(donor) || at(donor).copy.step != joined_after_) continue;
      at(m).copy = at(donor).copy;
      at(m).step = at(m).copy.step;
      at(m).w = at(m).copy.w;
      at(m).contributors = at(m).copy.contributors;
      at(m).takes_part = at(m).entered;
      return;
    }
  }
  [[nodiscard]] Contribution contribution(const Weights& x, const SyncId& id, WorkerId rank,
                                          bool commit) const {
    return {.id = id,
            .encoded = encode(*codec_, x, encode_key(id, static_cast<std::uint32_t>(rank.value()))),
            .codec = codec_,
            .weight = 1,
            .kind = plan_.kind,
            .commit = commit};
  }

  const SteppingPlan plan_;
  EngineNet& net_;
  const bool patient_;
  const std::shared_ptr<const Codec> codec_ = make_codec("fp32");
  std::vector<Member> members_;
  std::set<std::int64_t> meets_;  // steps after which all commit, beside those due
  int joiner_ = -1;
  std::int64_t joined_after_ = 0;
  int evicted_ = 0;
  int failed_ = 0;
  int failed_again_ = 0;
  int times_back_ = 0;
  std::int64_t furthest_back_ = 0;
};

}  // namespace isthmus::testing_support
