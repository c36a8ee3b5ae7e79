// SPDX-License-Identifier: Apache-2.0
// Sites at unlike steps, notes that take unlike times, sites that die, leave and come back:
// whatever the order, all of them stop and lay down checkpoints after the same steps, and nobody
// waits for ever.
#include "app/site_agreement.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <set>

#include "core/rng.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kSteps = 60;

/// A note, or the news that a site has joined after a step, or is gone.
struct Message {
  std::optional<Note> note;
  int who = -1;
  std::optional<StepIndex> joined_after;
};

/// Sites as tasks of one event loop; notes of one pair keep their order, no other order is kept.
class Sites {
 public:
  Sites(int members, std::uint64_t seed, int min_sites = 1) : rng_(seed, Stream::kTestData) {
    for (int m = 0; m < members; ++m) {
      agreements_.push_back(
          std::make_unique<SiteAgreement>(Rank(m), members, kSteps, 0, min_sites));
      agreements_.back()->look_ahead(1 + static_cast<std::int64_t>(draw(5)));
    }
    step_.assign(static_cast<std::size_t>(members), 0);
    done_.resize(static_cast<std::size_t>(members));
    over_.resize(static_cast<std::size_t>(members));
    dead_.resize(static_cast<std::size_t>(members));
    knows_of_join_.resize(static_cast<std::size_t>(members));
  }

  void wish(int m, Purpose purpose) {
    NotesOut out;
    agreements_[static_cast<std::size_t>(m)]->wish(purpose, out);
    post(m, out);
  }

  /// Site m is no more. What it has sent may still come; site 0 finds out, and tells the others.
  void kill(int m) {
    dead_[static_cast<std::size_t>(m)] = true;
    for (int to = 0; to < members(); ++to) links_[{m, to}].clear();
    links_[{m, 0}].push_back({.note = {}, .who = m, .joined_after = {}});
  }
  /// A new process of site m comes back as soon as its going is known, and a step is agreed on.
  void bring_back(int m) { coming_ = m; }

  /// One thing that can happen happens. RETURNS: false when nothing can.
  bool advance() {
    std::vector<std::pair<int, int>> choices;  // a note of a pair, or (m, -1): a step of m
    for (auto& [pair, notes] : links_) {
      if (!notes.empty()) choices.push_back(pair);
    }
    for (int m = 0; m < static_cast<int>(agreements_.size()); ++m) {
      if (may_step(m)) choices.emplace_back(m, -1);
    }
    if (choices.empty()) return false;
    const auto [a, b] = choices[draw(choices.size())];
    b < 0 ? take_step(a) : take_note(a, b);
    return true;
  }

  std::size_t draw(std::size_t below) {
    return static_cast<std::size_t>(rng_.uniform(drawn_++) * static_cast<double>(below));
  }
  [[nodiscard]] std::int64_t step(int m) const { return step_[static_cast<std::size_t>(m)]; }
  [[nodiscard]] const std::set<std::int64_t>& checkpoints(int m) const {
    return done_[static_cast<std::size_t>(m)];
  }
  [[nodiscard]] bool dead(int m) const { return dead_[static_cast<std::size_t>(m)]; }
  [[nodiscard]] bool over(int m) const { return over_[static_cast<std::size_t>(m)]; }
  [[nodiscard]] std::optional<std::int64_t> joined_after() const { return joined_after_; }
  /// By site that was found to leave: the step after which.
  [[nodiscard]] const std::map<int, std::int64_t>& left_after() const { return left_after_; }
  /// By site: why it cannot.
  [[nodiscard]] const std::map<int, std::string>& refused() const { return refused_; }
  [[nodiscard]] int members() const { return static_cast<int>(agreements_.size()); }

 private:
  [[nodiscard]] bool may_step(int m) {
    // Asking is all that `begin` does when the answer is no.
    return !dead(m) && !over_[static_cast<std::size_t>(m)] &&
           agreements_[static_cast<std::size_t>(m)]->begin(StepIndex(step(m) + 1));
  }
  // As a worker does: what it is not told by the end of a step is not done after it.
  void take_step(int m) {
    const auto place = static_cast<std::size_t>(m);
    const std::int64_t t = ++step_[place];
    if (joined_after_ && t > *joined_after_) {
      EXPECT_TRUE(knows_of_join_[place]) << "site " << m << " at step " << t;
    }
    const auto& stop = agreements_[place]->stop();
    over_[place] = t == kSteps || (stop && stop->first == t);
    const SiteAgreement& agreed = *agreements_[place];
    if (agreed.checkpoint_after(StepIndex(t)) || agreed.change_after(StepIndex(t)) ||
        over_[place]) {
      done_[place].insert(t);
    }
    const auto leaves = left_after_.find(m);
    if (leaves != left_after_.end() && leaves->second == t && !over_[place]) {
      dead_[place] = true;
      links_[{m, 0}].push_back({.note = {}, .who = m, .joined_after = {}});  // its goodbye
    }
  }
  void take_note(int from, int to) {
    std::deque<Message>& messages = links_[{from, to}];
    const Message message = messages.front();
    messages.pop_front();
    if (dead(to)) return;
    const auto place = static_cast<std::size_t>(to);
    NotesOut out;
    if (message.note) {
      agreements_[place]->receive(Rank(from), *message.note, out);
    } else if (message.joined_after) {
      join(to, message.who, *message.joined_after, out);
    } else {
      agreements_[place]->leave(Rank(message.who), out);
      if (to == 0) {
        tell_others(message);
        if (coming_ == message.who) agreements_[0]->wish(Purpose::kJoin, out);
      }
    }
    post(to, out);
  }
  // As the board at site 0 does: the membership goes out before the news of what was agreed.
  void post(int from, const NotesOut& out) {
    if (const auto why = agreements_[static_cast<std::size_t>(from)]->take_refusal()) {
      refused_[from] = *why;
    }
    std::optional<StepIndex> agreed;
    if (from == 0) agreed = agreements_[0]->take_join();
    if (const auto leave = agreements_[0]->take_leave()) {
      left_after_[leave->first.value()] = leave->second.value();
      for (int m = 0; m < members(); ++m) EXPECT_TRUE(dead(m) || step(m) <= leave->second.value());
    }
    NotesOut more;
    if (agreed) {
      const auto place = static_cast<std::size_t>(coming_);
      joined_after_ = agreed->value();
      agreements_[place] =
          std::make_unique<SiteAgreement>(Rank(coming_), members(), kSteps, agreed->value());
      for (int m = 0; m < members(); ++m) links_[{m, coming_}].clear();
      step_[place] = agreed->value();
      dead_[place] = false;
      over_[place] = true;  // until it knows that it belongs to the run
      done_[place].clear();
      tell_others({.note = {}, .who = coming_, .joined_after = agreed});
      join(0, coming_, *agreed, more);
    }
    for (const auto& [to, note] : out) send(from, to, note);
    for (const auto& [to, note] : more) send(from, to, note);
  }
  void join(int at, int who, StepIndex after, NotesOut& out) {
    const auto place = static_cast<std::size_t>(at);
    knows_of_join_[place] = true;
    agreements_[place]->join(Rank(who), after, out);
    if (at == who) over_[place] = after.value() == kSteps;
  }
  void tell_others(const Message& message) {
    for (int to = 1; to < members(); ++to) {
      if (!dead(to)) links_[{0, to}].push_back(message);
    }
  }
  void send(int from, Rank to, const Note& note) {
    links_[{from, to.value()}].push_back({.note = note, .who = -1, .joined_after = {}});
  }

  Rng rng_;
  std::uint64_t drawn_ = 0;
  std::vector<std::unique_ptr<SiteAgreement>> agreements_;
  std::vector<std::int64_t> step_;
  std::vector<std::set<std::int64_t>> done_;  // steps after which a checkpoint was laid down
  std::vector<bool> over_;
  std::vector<bool> dead_;
  std::vector<bool> knows_of_join_;
  int coming_ = -1;
  std::optional<std::int64_t> joined_after_;
  std::map<int, std::int64_t> left_after_;
  std::map<int, std::string> refused_;
  std::map<std::pair<int, int>, std::deque<Message>> links_;
};

TEST(SiteAgreement, AllStopAfterOneStepInAnyOrderOfEvents) {
  int stopped_early = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const int members = 1 + static_cast<int>(seed % 5);
    Sites sites(members, seed);
    const std::size_t wish_at = sites.draw(80);
    for (std::size_t events = 0; sites.advance(); ++events) {
      if (events == wish_at) {
        sites.wish(static_cast<int>(sites.draw(static_cast<std::size_t>(members))),
                   Purpose::kInterrupt);
      }
      if (events == wish_at + 3) {  // another one, of another kind: the first decides
        sites.wish(static_cast<int>(sites.draw(static_cast<std::size_t>(members))),
                   Purpose::kRequeue);
      }
      ASSERT_LT(events, 10000U) << "seed " << seed;
    }
    for (int m = 0; m < members; ++m) {
      ASSERT_TRUE(sites.over(m)) << "seed " << seed << ", site " << m;
      ASSERT_EQ(sites.step(m), sites.step(0)) << "seed " << seed << ", site " << m;
    }
    stopped_early += sites.step(0) < kSteps ? 1 : 0;
  }
  EXPECT_GT(stopped_early, 1000);  // the schedules do reach what is tested
}

TEST(SiteAgreement, AllLayDownTheSameCheckpoints) {
  std::size_t laid_down = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const int members = 2 + static_cast<int>(seed % 4);
    Sites sites(members, seed);
    const std::size_t first = sites.draw(60);
    const std::size_t second = first + sites.draw(60);
    for (std::size_t events = 0; sites.advance(); ++events) {
      if (events == first || events == second) sites.wish(0, Purpose::kCheckpoint);
      ASSERT_LT(events, 10000U) << "seed " << seed;
    }
    for (int m = 0; m < members; ++m) {
      ASSERT_EQ(sites.step(m), kSteps) << "seed " << seed << ", site " << m;
      ASSERT_EQ(sites.checkpoints(m), sites.checkpoints(0)) << "seed " << seed << ", site " << m;
    }
    laid_down += sites.checkpoints(0).size();
  }
  EXPECT_GT(laid_down, 4000U);  // the one at the end and two more, but for those that came too late
}

TEST(SiteAgreement, WhoeverDiesTheOthersAgree) {
  int stopped_early = 0;
  std::size_t laid_down = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const int members = 2 + static_cast<int>(seed % 4);
    Sites sites(members, seed);
    const auto someone = [&] { return sites.draw(static_cast<std::size_t>(members)); };
    const std::size_t checkpoint_at = sites.draw(60);
    const std::size_t stop_at = sites.draw(200);
    const std::size_t death_at = sites.draw(60);
    const int victim = 1 + static_cast<int>(sites.draw(static_cast<std::size_t>(members) - 1));
    for (std::size_t events = 0; sites.advance(); ++events) {
      if (events == checkpoint_at) sites.wish(0, Purpose::kCheckpoint);
      if (events == stop_at) {
        const int m = static_cast<int>(someone());
        if (!sites.dead(m)) sites.wish(m, Purpose::kInterrupt);
      }
      if (events == death_at) sites.kill(victim);
      ASSERT_LT(events, 10000U) << "seed " << seed;
    }
    for (int m = 0; m < members; ++m) {
      if (sites.dead(m)) continue;
      ASSERT_TRUE(sites.over(m)) << "seed " << seed << ", site " << m << " waits for ever";
      ASSERT_EQ(sites.step(m), sites.step(0)) << "seed " << seed << ", site " << m;
      ASSERT_EQ(sites.checkpoints(m), sites.checkpoints(0)) << "seed " << seed << ", site " << m;
    }
    stopped_early += sites.step(0) < kSteps ? 1 : 0;
    laid_down += sites.checkpoints(0).size();
  }
  EXPECT_GT(stopped_early, 1000);
  EXPECT_GT(laid_down, 6000U);
}

TEST(SiteAgreement, AJoinerTakesPartInWhatComesAfterItsStep) {
  int joined = 0;
  int with_more = 0;  // of those, with something agreed for a step after the join
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const int members = 2 + static_cast<int>(seed % 4);
    Sites sites(members, seed);
    const std::size_t checkpoint_at = sites.draw(150);
    const std::size_t stop_at = sites.draw(300);
    const int victim = 1 + static_cast<int>(sites.draw(static_cast<std::size_t>(members) - 1));
    sites.bring_back(victim);
    const std::size_t death_at = sites.draw(60);
    for (std::size_t events = 0; sites.advance(); ++events) {
      if (events == checkpoint_at) sites.wish(0, Purpose::kCheckpoint);
      if (events == stop_at) sites.wish(0, Purpose::kRequeue);
      if (events == death_at) sites.kill(victim);
      ASSERT_LT(events, 10000U) << "seed " << seed;
    }
    const std::int64_t after = sites.joined_after().value_or(kSteps);
    const std::int64_t end = sites.step(0);
    for (int m = 0; m < members; ++m) {
      if (sites.dead(m)) continue;
      const bool came_too_late = m == victim && after >= end;
      ASSERT_TRUE(sites.over(m) || came_too_late) << "seed " << seed << ", site " << m;
      if (came_too_late) continue;
      ASSERT_EQ(sites.step(m), end) << "seed " << seed << ", site " << m;
      const auto later = [&](const std::set<std::int64_t>& steps) {
        return std::set<std::int64_t>(steps.upper_bound(after), steps.end());
      };
      ASSERT_EQ(later(sites.checkpoints(m)), later(sites.checkpoints(0)))
          << "seed " << seed << ", site " << m;
    }
    joined += after < end ? 1 : 0;
    with_more += after < end && sites.checkpoints(0).upper_bound(after) !=
                                    std::prev(sites.checkpoints(0).end())
                     ? 1
                     : 0;
  }
  EXPECT_GT(joined, 1000);
  EXPECT_GT(with_more, 300);
}

TEST(SiteAgreement, WhoeverWantsToLeaveDoesSoAfterAStepThatAllKnow) {
  std::size_t left = 0;
  int two_left = 0;
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const int members = 2 + static_cast<int>(seed % 4);
    Sites sites(members, seed, 2);
    const std::size_t first_at = sites.draw(60);
    const std::size_t second_at = sites.draw(60);
    const std::size_t checkpoint_at = sites.draw(150);
    const std::size_t death_at = seed % 3 == 0 ? sites.draw(100) : 10000;
    const int victim = 1 + static_cast<int>(sites.draw(static_cast<std::size_t>(members) - 1));
    for (std::size_t events = 0; sites.advance(); ++events) {
      const int m = static_cast<int>(sites.draw(static_cast<std::size_t>(members)));
      const bool leave = events == first_at || events == second_at;
      if (leave && !sites.dead(m)) sites.wish(m, Purpose::kLeave);
      if (events == checkpoint_at) sites.wish(0, Purpose::kCheckpoint);
      if (events == death_at && !sites.dead(victim)) sites.kill(victim);
      ASSERT_LT(events, 10000U) << "seed " << seed;
    }
    int there = 0;
    for (int m = 0; m < members; ++m) {
      const auto leaves = sites.left_after().find(m);
      if (leaves != sites.left_after().end() && m != victim) {
        ASSERT_EQ(sites.step(m), leaves->second) << "seed " << seed << ", site " << m;
        ASSERT_TRUE(sites.checkpoints(m).contains(leaves->second)) << "seed " << seed;
      }
      if (sites.dead(m)) continue;
      ++there;
      ASSERT_TRUE(sites.over(m)) << "seed " << seed << ", site " << m << " waits for ever";
      ASSERT_EQ(sites.step(m), kSteps) << "seed " << seed << ", site " << m;
      ASSERT_EQ(sites.checkpoints(m), sites.checkpoints(0)) << "seed " << seed << ", site " << m;
    }
    ASSERT_FALSE(sites.left_after().contains(0)) << "seed " << seed;
    ASSERT_TRUE(there >= 2 || death_at < 10000) << "seed " << seed;
    left += sites.left_after().size();
    two_left += sites.left_after().size() == 2 ? 1 : 0;
    refused += sites.refused().size();
  }
  EXPECT_GT(left, 2000U);
  EXPECT_GT(two_left, 300);
  EXPECT_GT(refused, 1000U);
}

TEST(SiteAgreement, AStepForAJoinerMayBeAgreedOnAgain) {
  SiteAgreement alone(Rank(0), 1, kSteps);
  for (const std::int64_t begun : {7, 20}) {
    ASSERT_TRUE(alone.begin(StepIndex(begun)));
    NotesOut out;
    alone.wish(Purpose::kJoin, out);
    EXPECT_EQ(alone.take_join(), StepIndex(begun + 1));
    EXPECT_EQ(alone.take_join(), std::nullopt);
    EXPECT_TRUE(alone.change_after(StepIndex(begun + 1)));
  }
  EXPECT_FALSE(alone.stop().has_value());
}

TEST(SiteAgreement, OneSiteAgreesAtOnce) {
  SiteAgreement alone(Rank(0), 1, kSteps);
  ASSERT_TRUE(alone.begin(StepIndex(7)));
  NotesOut out;
  alone.wish(Purpose::kRequeue, out);
  EXPECT_TRUE(out.empty());
  ASSERT_TRUE(alone.stop().has_value());
  EXPECT_EQ(alone.stop()->first, 8);
  EXPECT_EQ(alone.stop()->second, Purpose::kRequeue);
}

TEST(SiteAgreement, AWishBeforeTheFirstStepAfterAResumeIsForThatStep) {
  SiteAgreement alone(Rank(0), 1, kSteps, 30);
  NotesOut out;
  alone.wish(Purpose::kRequeue, out);
  ASSERT_TRUE(alone.stop().has_value());
  EXPECT_EQ(alone.stop()->first, 31);
  EXPECT_TRUE(alone.begin(StepIndex(31)));
}

TEST(SiteAgreement, AWishInTheLastStepsLetsTheRunEndByItself) {
  SiteAgreement alone(Rank(0), 1, kSteps);
  ASSERT_TRUE(alone.begin(StepIndex(kSteps)));
  NotesOut out;
  alone.wish(Purpose::kInterrupt, out);
  EXPECT_FALSE(alone.stop().has_value());
}

}  // namespace
}  // namespace isthmus::app
