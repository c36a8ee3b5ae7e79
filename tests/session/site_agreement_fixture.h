// SPDX-License-Identifier: Apache-2.0
// Sites at unlike steps, notes that take unlike times, sites that die, leave and come back, in the
// order that a seed gives.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "session/site/site_agreement.h"

namespace isthmus::app {

inline constexpr std::int64_t kSteps = 60;
inline constexpr std::int64_t kWindow = 4;

/// A note, or the news that a site has joined after a step, or is gone.
struct Message {
  std::optional<Note> note;
  int who = -1;
  std::optional<StepIndex> joined_after;
};

/// Sites as tasks of one event loop; notes of one pair keep their order, no other order is kept.
class Sites {
 public:
  Sites(int members, std::uint64_t seed, int min_sites = 1)
      : rng_(seed, Stream::kTestData), min_sites_(min_sites) {
    for (int m = 0; m < members; ++m) {
      agreements_.push_back(
          std::make_unique<SiteAgreement>(WorkerId(m), members, kSteps, 0, min_sites));
      agreements_.back()->set_window(kWindow);
      agreements_.back()->look_ahead(1 + static_cast<std::int64_t>(draw(5)));
    }
    step_.assign(static_cast<std::size_t>(members), 0);
    done_.resize(static_cast<std::size_t>(members));
    over_.resize(static_cast<std::size_t>(members));
    dead_.resize(static_cast<std::size_t>(members));
    gone_.resize(static_cast<std::size_t>(members));
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

  /// A new process of site m, whose going is known, has the state: now.
  void let_in(int m) {
    NotesOut out;
    coming_ = m;
    knows_of_join_.assign(knows_of_join_.size(), false);
    joined_after_.reset();
    agreements_[0]->wish(Purpose::kJoin, out);
    post(0, out);
  }
  [[nodiscard]] bool waits(int m) const {
    return agreements_[static_cast<std::size_t>(m)]->waits(StepIndex(step(m) + 1));
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
      agreements_[place]->receive(WorkerId(from), *message.note, out);
    } else if (message.joined_after) {
      join(to, message.who, *message.joined_after, out);
    } else {
      agreements_[place]->leave(WorkerId(message.who), out);
      if (to == 0) {
        gone_[static_cast<std::size_t>(message.who)] = true;
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
      agreements_[place] = std::make_unique<SiteAgreement>(WorkerId(coming_), members(), kSteps,
                                                           agreed->value(), min_sites_);
      agreements_[place]->set_window(kWindow);
      gone_[place] = false;
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
    for (int m = 0; m < members() && at == who; ++m) {  // as its board does
      if (gone_[static_cast<std::size_t>(m)]) agreements_[place]->leave(WorkerId(m), out);
    }
    agreements_[place]->join(WorkerId(who), after, out);
    if (at == who) over_[place] = after.value() == kSteps;
  }
  void tell_others(const Message& message) {
    for (int to = 1; to < members(); ++to) {
      if (!dead(to)) links_[{0, to}].push_back(message);
    }
  }
  void send(int from, WorkerId to, const Note& note) {
    links_[{from, to.value()}].push_back({.note = note, .who = -1, .joined_after = {}});
  }

  Rng rng_;
  const int min_sites_;
  std::uint64_t drawn_ = 0;
  std::vector<std::unique_ptr<SiteAgreement>> agreements_;
  std::vector<std::int64_t> step_;
  std::vector<std::set<std::int64_t>> done_;  // steps after which a checkpoint was laid down
  std::vector<bool> over_;
  std::vector<bool> dead_;
  std::vector<bool> gone_;  // as site 0 knows it
  std::vector<bool> knows_of_join_;
  int coming_ = -1;
  std::optional<std::int64_t> joined_after_;
  std::map<int, std::int64_t> left_after_;
  std::map<int, std::string> refused_;
  std::map<std::pair<int, int>, std::deque<Message>> links_;
};

}  // namespace isthmus::app
