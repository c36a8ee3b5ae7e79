// SPDX-License-Identifier: Apache-2.0
// Sites at unlike steps, notes that take unlike times: whatever the order, all of them stop and lay
// down checkpoints after the same steps, and nobody waits for ever.
#include "app/site_agreement.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>

#include "core/rng.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kSteps = 60;

/// Sites as tasks of one event loop; notes of one pair keep their order, no other order is kept.
class Sites {
 public:
  Sites(int members, std::uint64_t seed) : rng_(seed, Stream::kTestData) {
    for (int m = 0; m < members; ++m) {
      agreements_.emplace_back(Rank(m), members, kSteps);
      agreements_.back().look_ahead(1 + static_cast<std::int64_t>(draw(5)));
    }
    step_.assign(static_cast<std::size_t>(members), 0);
    done_.resize(static_cast<std::size_t>(members));
    over_.resize(static_cast<std::size_t>(members));
  }

  void wish(int m, Purpose purpose) {
    NotesOut out;
    agreements_[static_cast<std::size_t>(m)].wish(purpose, out);
    post(m, out);
  }

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
  [[nodiscard]] int members() const { return static_cast<int>(agreements_.size()); }

 private:
  [[nodiscard]] bool may_step(int m) {
    // Asking is all that `begin` does when the answer is no.
    return !over_[static_cast<std::size_t>(m)] &&
           agreements_[static_cast<std::size_t>(m)].begin(StepIndex(step(m) + 1));
  }
  // As a worker does: what it is not told by the end of a step is not done after it.
  void take_step(int m) {
    const auto place = static_cast<std::size_t>(m);
    const std::int64_t t = ++step_[place];
    const auto& stop = agreements_[place].stop();
    over_[place] = t == kSteps || (stop && stop->first == t);
    if (agreements_[place].checkpoint_after(StepIndex(t)) || over_[place]) {
      done_[place].insert(t);
    }
  }
  void take_note(int from, int to) {
    std::deque<Note>& notes = links_[{from, to}];
    const Note note = notes.front();
    notes.pop_front();
    NotesOut out;
    agreements_[static_cast<std::size_t>(to)].receive(Rank(from), note, out);
    post(to, out);
  }
  void post(int from, const NotesOut& out) {
    for (const auto& [to, note] : out) links_[{from, to.value()}].push_back(note);
  }

  Rng rng_;
  std::uint64_t drawn_ = 0;
  std::vector<SiteAgreement> agreements_;
  std::vector<std::int64_t> step_;
  std::vector<std::set<std::int64_t>> done_;  // steps after which a checkpoint was laid down
  std::vector<bool> over_;
  std::map<std::pair<int, int>, std::deque<Note>> links_;
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
