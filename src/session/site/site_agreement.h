// SPDX-License-Identifier: Apache-2.0
// Sites agree on one step after which all of them stop, or lay down a checkpoint, although each is
// at another step and goes on meanwhile. Whoever wants it tells the coordinator: site 0, or a hub,
// which takes no steps. It asks everyone how far it has come; a site answers with a step a little
// ahead, which it does not begin before it is told; the coordinator takes the largest answer. So
// everybody knows of the agreed step before beginning it, and in general nobody stands still. Sites
// may go and come, but for site 0: an answer is needed of those that are there. A hub may die: what
// it has agreed on is written down, and what it has asked is void once its next process is there.
// Of those who want to join or to leave one does so at a time; the others' turn comes. When fewer
// than min_sites are left the coordinator asks for a step by itself: after it all stand until
// enough are there again, or the run is to end. What is agreed on meanwhile happens there. One that
// comes back, and they are still too few, costs them a few steps more: those in which it is taken
// in. A state machine: notes in, notes out; it knows no time and no threads.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "session/site/site_notes.h"

namespace isthmus::app {

/// Notes to send, in order.
using NotesOut = std::vector<std::pair<WorkerId, Note>>;

class SiteAgreement {
 public:
  /// `taken`: steps taken before, equal at all sites. `min_sites`: nobody leaves so many.
  SiteAgreement(WorkerId self, int members, std::int64_t total_steps, std::int64_t taken = 0,
                int min_sites = 1, WorkerId coordinator = WorkerId(0));

  /// Sites that are relays, and those that are reached by way of them alone: the last relay does
  /// not leave these. Before anybody wishes anything.
  void set_relays(std::vector<WorkerId> relays, std::vector<WorkerId> hidden);

  /// In so many steps one that has joined is taken in, and the next one's turn comes. Before
  /// anybody wishes anything; equal at all sites.
  void set_window(std::int64_t steps) { window_ = steps; }

  /// The worker wants to begin step t. RETURNS: whether it may now; if so it counts as begun.
  [[nodiscard]] bool begin(StepIndex t);
  /// Whether it may not because too few sites are there.
  [[nodiscard]] bool waits(StepIndex t) const;
  /// Whether the run ends before it: what was agreed on while all stood.
  [[nodiscard]] bool ends_before(StepIndex t) const;
  /// How many steps ahead of the one begun an answer lies: those of about half a second.
  void look_ahead(std::int64_t steps);

  /// This site has been asked for it. The same wish to stop twice is one.
  void wish(Purpose purpose, NotesOut& out);
  /// A kJoin, whose newcomer a hub wants to know.
  void wish_join(const WishNote& note, NotesOut& out);
  /// A hub's next process is there, and has told what had been agreed.
  void hub_back(NotesOut& out);
  /// At a hub: what the process before had agreed on.
  void resume(const std::vector<AgreedNote>& agreed);
  /// A WishNote, AskNote, HoldNote, AgreedNote or RefusedNote. Others are none of its business.
  void receive(WorkerId from, const Note& note, NotesOut& out);

  /// Another site is gone: nobody waits for its answers.
  void leave(WorkerId site, NotesOut& out);
  /// It takes part from the step after `after` on, knowing nothing. The coordinator tells it what
  /// was agreed for later steps, and asks it what it has not answered; until then the joiner begins
  /// none.
  void join(WorkerId site, StepIndex after, NotesOut& out);

  /// At a hub: the site has found this process, and holds nothing. It is asked what is open.
  void ask_again(WorkerId site, NotesOut& out) const;

  /// What has been agreed so far.
  [[nodiscard]] bool checkpoint_after(StepIndex t) const {
    return agreed_.checkpoints.contains(t.value()) || agreed_.waits_after == t.value();
  }
  /// Where somebody joins or leaves.
  [[nodiscard]] bool change_after(StepIndex t) const { return agreed_.changes.contains(t.value()); }
  /// The step just agreed on for a joiner; each is given once.
  [[nodiscard]] std::optional<StepIndex> take_join() { return std::exchange(untaken_.join, {}); }
  /// At site 0: who has just been found to leave, and after which step; each is given once.
  [[nodiscard]] std::optional<std::pair<WorkerId, StepIndex>> take_leave() {
    return std::exchange(untaken_.leave, {});
  }
  /// At site 0: it does not, after all; `why` is for it.
  void stays(WorkerId who, const std::string& why, NotesOut& out);
  /// Why this site cannot leave as it wished; each is given once.
  [[nodiscard]] std::optional<std::string> take_refusal() {
    return std::exchange(untaken_.refusal, {});
  }
  /// The step after which the run ends early, and why.
  [[nodiscard]] const std::optional<std::pair<std::int64_t, Purpose>>& stop() const {
    return agreed_.stop;
  }

 private:
  [[nodiscard]] bool coordinates() const { return self_ == coordinator_; }
  /// At the coordinator: one question under way.
  struct Question {
    Purpose purpose = Purpose::kCheckpoint;
    WorkerId who;                         // leaves, where that is the purpose
    std::map<int, std::int64_t> answers;  // by site
  };
  /// The answers of all sites, settled.
  struct Agreed {
    std::set<std::int64_t> questions;
    std::set<std::int64_t> checkpoints;
    std::set<std::int64_t> changes;
    std::optional<std::int64_t> waits_after;  // without meaning once the sites were enough again
    std::optional<std::pair<std::int64_t, Purpose>> stop;
  };
  /// Events that the owner takes, each once.
  struct Untaken {
    std::optional<StepIndex> join;
    std::optional<std::pair<WorkerId, StepIndex>> leave;
    std::optional<std::string> refusal;
  };
  void ask(Purpose purpose, WorkerId who, NotesOut& out);
  /// Whose turn it is to join or to leave.
  void ask_next(NotesOut& out);
  void release(WorkerId who, StepIndex after, NotesOut& out);
  void refuse(WorkerId who, const std::string& why, NotesOut& out);
  [[nodiscard]] std::optional<std::string> must_stay(WorkerId who) const;
  void answer(std::int64_t number, NotesOut& out);
  void count(WorkerId from, const HoldNote& note, NotesOut& out);
  void conclude(std::int64_t number, NotesOut& out);
  void tell_others(const Note& note, NotesOut& out) const;
  void settle(const AgreedNote& note);
  [[nodiscard]] bool too_few() const;
  void wait_after(std::int64_t step);

  const WorkerId self_;
  const WorkerId coordinator_;
  std::vector<bool> live_;
  const std::int64_t total_steps_;
  const int min_sites_;
  std::vector<WorkerId> relays_, hidden_;
  std::int64_t window_ = 0;
  std::int64_t begun_;
  std::int64_t joined_after_ = -1;  // where this site did
  std::int64_t ahead_ = 1;
  std::map<std::int64_t, std::int64_t> holds_;  // by question: do not begin this step
  std::set<Purpose> wished_;
  Agreed agreed_;
  std::optional<std::int64_t> taken_in_by_;  // the step by which the last joiner is taken in
  Untaken untaken_;
  // At the coordinator:
  std::int64_t asked_ = 0;
  std::map<std::int64_t, Question> questions_;
  std::deque<std::pair<Purpose, WorkerId>> waiting_;  // each once: to join or to leave
  std::optional<WorkerId> leaving_;                   // it is still there
};

}  // namespace isthmus::app
