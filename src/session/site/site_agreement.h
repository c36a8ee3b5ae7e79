// SPDX-License-Identifier: Apache-2.0
// Agreement on one step after which all sites stop, or save a checkpoint, although the sites are at
// different steps and continue to train. A site with a wish tells the coordinator: site 0, or a
// hub, which takes no steps. The coordinator asks every site how far it has come. A site answers
// with a step a little ahead, which it does not begin before it knows the outcome; the coordinator
// takes the largest answer. So every site knows the agreed step before it begins it, and in general
// no site pauses. Sites other than site 0 may leave and join: only sites that are present need to
// answer. A hub may die: its agreements are logged, and its open questions are void once its next
// process is there. One site at a time joins or leaves; the others wait for their turn. When fewer
// than min_sites are left, the coordinator asks for a step by itself: after that step all sites
// pause until enough are present, or the run ends. Wishes agreed on meanwhile take effect at that
// step. A site that rejoins while too few are present costs the others a few steps: those in which
// it is taken in. A state machine: notes in, notes out; it does not know time or threads.
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
  /// `taken`: steps taken before, equal at all sites. `min_sites`: no site may leave when fewer
  /// would be left.
  SiteAgreement(WorkerId self, int members, std::int64_t total_steps, std::int64_t taken = 0,
                int min_sites = 1, WorkerId coordinator = WorkerId(0));

  /// The relays among the sites, and the sites that are reachable only through relays: the last
  /// relay may not leave them. Call before the first wish.
  void set_relays(std::vector<WorkerId> relays, std::vector<WorkerId> hidden);

  /// The steps in which a joiner is taken in, before the next one's turn. Call before the first
  /// wish; equal at all sites.
  void set_window(std::int64_t steps) { window_ = steps; }

  /// The worker wants to begin step t. RETURNS: whether it may; if so the step counts as begun.
  [[nodiscard]] bool begin(StepIndex t);
  /// Whether step t may not begin because too few sites are present.
  [[nodiscard]] bool waits(StepIndex t) const;
  /// Whether the run ends before step t, by an agreement made during a pause.
  [[nodiscard]] bool ends_before(StepIndex t) const;
  /// How many steps ahead of the begun one an answer lies: about half a second's worth.
  void look_ahead(std::int64_t steps);

  /// A wish of this site. A second wish to stop of the same kind has no effect.
  void wish(Purpose purpose, NotesOut& out);
  /// A wish for a join; a hub needs the joiner's number.
  void wish_join(const WishNote& note, NotesOut& out);
  /// A hub's next process is there and has repeated its agreements.
  void hub_back(NotesOut& out);
  /// At a hub: restores the agreements of the previous process.
  void resume(const std::vector<AgreedNote>& agreed);
  /// Handles WishNote, AskNote, HoldNote, AgreedNote and RefusedNote; ignores all other notes.
  void receive(WorkerId from, const Note& note, NotesOut& out);

  /// Another site is lost or has left: its answers are not awaited any more.
  void leave(WorkerId site, NotesOut& out);
  /// `site` takes part from the step after `after` on, without knowledge of agreements. The
  /// coordinator sends it the agreements on later steps and the open questions; until then the
  /// joiner begins no step.
  void join(WorkerId site, StepIndex after, NotesOut& out);

  /// At a hub: the site has connected to this process and holds no step. Sends it the open
  /// questions.
  void ask_again(WorkerId site, NotesOut& out) const;

  /// What has been agreed on so far.
  [[nodiscard]] bool checkpoint_after(StepIndex t) const {
    return agreed_.checkpoints.contains(t.value()) || agreed_.waits_after == t.value();
  }
  /// Whether a site joins or leaves after step t.
  [[nodiscard]] bool change_after(StepIndex t) const { return agreed_.changes.contains(t.value()); }
  /// The step just agreed on for a joiner; returned once.
  [[nodiscard]] std::optional<StepIndex> take_join() { return std::exchange(untaken_.join, {}); }
  /// At site 0: the site that just got a step for leaving, and the step; returned once.
  [[nodiscard]] std::optional<std::pair<WorkerId, StepIndex>> take_leave() {
    return std::exchange(untaken_.leave, {});
  }
  /// At site 0: `who` cannot leave after all; it is sent `why`.
  void stays(WorkerId who, const std::string& why, NotesOut& out);
  /// Why this site cannot leave as it wished; returned once.
  [[nodiscard]] std::optional<std::string> take_refusal() {
    return std::exchange(untaken_.refusal, {});
  }
  /// The step after which the run ends early, and why.
  [[nodiscard]] const std::optional<std::pair<std::int64_t, Purpose>>& stop() const {
    return agreed_.stop;
  }

 private:
  [[nodiscard]] bool coordinates() const { return self_ == coordinator_; }
  /// At the coordinator: an open question.
  struct Question {
    Purpose purpose = Purpose::kCheckpoint;
    WorkerId who;                         // the leaving site, for kLeave
    std::map<int, std::int64_t> answers;  // by site
  };
  /// Agreements of all sites.
  struct Agreed {
    std::set<std::int64_t> questions;
    std::set<std::int64_t> checkpoints;
    std::set<std::int64_t> changes;
    std::optional<std::int64_t> waits_after;  // void once enough sites were present again
    std::optional<std::pair<std::int64_t, Purpose>> stop;
  };
  /// Results that the owner takes, each once.
  struct Untaken {
    std::optional<StepIndex> join;
    std::optional<std::pair<WorkerId, StepIndex>> leave;
    std::optional<std::string> refusal;
  };
  void ask(Purpose purpose, WorkerId who, NotesOut& out);
  /// Asks for the next waiting join or leave.
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
  std::int64_t joined_after_ = -1;  // if this site joined
  std::int64_t ahead_ = 1;
  std::map<std::int64_t, std::int64_t> holds_;  // by question: do not begin this step
  std::set<Purpose> wished_;
  Agreed agreed_;
  std::optional<std::int64_t> taken_in_by_;  // the step by which the last joiner is taken in
  Untaken untaken_;
  // At the coordinator:
  std::int64_t asked_ = 0;
  std::map<std::int64_t, Question> questions_;
  std::deque<std::pair<Purpose, WorkerId>> waiting_;  // waiting joins and leaves, each once
  std::optional<WorkerId> leaving_;                   // still present
};

}  // namespace isthmus::app
