// SPDX-License-Identifier: Apache-2.0
// Sites agree on one step after which all of them stop, or lay down a checkpoint, although each is
// at another step and goes on meanwhile. Whoever wants it tells site 0. Site 0 asks everyone how
// far it has come; a site answers with a step a little ahead, which it does not begin before it is
// told; site 0 takes the largest answer. So everybody knows of the agreed step before beginning it,
// and in general nobody stands still. Sites may go and come, but for site 0: an answer is needed of
// those that are there. A state machine: notes in, notes out; it knows no time and no threads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "app/site_notes.h"

namespace isthmus::app {

/// Notes to send, in order.
using NotesOut = std::vector<std::pair<Rank, Note>>;

class SiteAgreement {
 public:
  /// `taken`: steps taken before, equal at all sites.
  SiteAgreement(Rank self, int members, std::int64_t total_steps, std::int64_t taken = 0);

  /// The worker wants to begin step t. RETURNS: whether it may now; if so it counts as begun.
  [[nodiscard]] bool begin(StepIndex t);
  /// How many steps ahead of the one begun an answer lies: those of about half a second.
  void look_ahead(std::int64_t steps);

  /// This site has been asked for it. The same wish to stop twice is one.
  void wish(Purpose purpose, NotesOut& out);
  /// A WishNote, AskNote, HoldNote or AgreedNote. Others are none of its business.
  void receive(Rank from, const Note& note, NotesOut& out);

  /// Another site is gone: nobody waits for its answers.
  void leave(Rank site, NotesOut& out);
  /// It takes part from the step after `after` on, knowing nothing. Site 0 tells it what was agreed
  /// for later steps, and asks it what it has not answered; until then the joiner begins none.
  void join(Rank site, StepIndex after, NotesOut& out);

  /// What has been agreed so far.
  [[nodiscard]] bool checkpoint_after(StepIndex t) const {
    return checkpoints_.contains(t.value());
  }
  [[nodiscard]] bool join_after(StepIndex t) const { return joins_.contains(t.value()); }
  /// The step just agreed on for a joiner; each is given once.
  [[nodiscard]] std::optional<StepIndex> take_join() { return std::exchange(fresh_join_, {}); }
  /// The step after which the run ends early, and why.
  [[nodiscard]] const std::optional<std::pair<std::int64_t, Purpose>>& stop() const {
    return stop_;
  }

 private:
  /// At site 0: one question under way.
  struct Question {
    Purpose purpose = Purpose::kCheckpoint;
    std::map<int, std::int64_t> answers;  // by site
  };
  void ask(Purpose purpose, NotesOut& out);
  void answer(std::int64_t number, NotesOut& out);
  void count(Rank from, const HoldNote& note, NotesOut& out);
  void conclude(std::int64_t number, NotesOut& out);
  void tell_others(const Note& note, NotesOut& out) const;
  void settle(const AgreedNote& note);

  const Rank self_;
  std::vector<bool> live_;
  const std::int64_t total_steps_;
  std::int64_t begun_;
  std::int64_t ahead_ = 1;
  std::map<std::int64_t, std::int64_t> holds_;  // by question: do not begin this step
  std::set<Purpose> wished_;
  std::set<std::int64_t> checkpoints_;
  std::set<std::int64_t> joins_;
  std::optional<StepIndex> fresh_join_;
  std::optional<std::pair<std::int64_t, Purpose>> stop_;
  // At site 0:
  std::int64_t asked_ = 0;
  std::map<std::int64_t, Question> questions_;
};

}  // namespace isthmus::app
