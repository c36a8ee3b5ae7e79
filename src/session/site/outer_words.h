// SPDX-License-Identifier: Apache-2.0
// What the sites of a run tell one another of their outer states: after a step at which all lay
// down a checkpoint each tells its digest, and waits for those of all who took the step; where they
// are not alike, each tells what its replay has come to, and waits again
// (session/run/outer_verdict.h). A site that is lost may have told some of the others and not the
// rest. So whoever hears of a loss tells all who are left what it has heard of those who are gone,
// once, and waits for their word of it before it decides anything: what one has heard of a lost
// site all who are left know then, and since what is decided follows from the words alone, all
// decide the same. A second loss meanwhile is told of in the same way, with the words of the first.
// A state machine: notes in, notes out; it knows no time and no threads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "session/run/outer_verdict.h"
#include "session/site/site_agreement.h"
#include "session/site/site_notes.h"
#include "transport/wire/epoch.h"

namespace isthmus::app {

class OuterWords {
 public:
  struct Options {
    WorkerId self;
    std::vector<std::string> sites = {};  // names, in member order
    std::string about = {};               // this site's program and processor
    std::int64_t resumed_after = 0;       // steps taken before
    bool joining = false;                 // nobody is there before `join` says so
  };
  explicit OuterWords(Options options);

  /// This site's digest after step t. `tensors`: of each tensor (session/run/run_start.h), or
  /// empty.
  void tell(StepIndex t, const std::string& digest, NotesOut& out, const std::string& tensors = {});
  void tell_replay(StepIndex t, const OuterReplay& replay, NotesOut& out);
  /// It cannot be decided whose state is wrong, and so the run ends: everywhere, whether or not the
  /// others have what it takes to see it.
  void give_up(const std::string& why, NotesOut& out);
  /// An OuterNote, GoneNote or DifferNote; others are none of its business. RETURNS: why the note
  /// cannot be.
  [[nodiscard]] Expected<void, std::string> receive(WorkerId from, const Note& note);
  /// `epoch.who` takes no part any more: it is lost, or has ended what it was to do.
  void leave(const Epoch& epoch, NotesOut& out);
  /// It takes part in the steps after `after`.
  void join(WorkerId site, StepIndex after);

  /// RETURNS: whether all who took step t hold the same after it; nothing while that is not known.
  [[nodiscard]] std::optional<bool> alike(StepIndex t) const;
  /// RETURNS: the words of all who took step t, in site order, then what is known of those who are
  /// gone; nothing while a replay is to come.
  [[nodiscard]] std::optional<std::vector<OuterWord>> words(StepIndex t) const;
  /// All of them hold this after step t, from now on.
  void healed(StepIndex t, const std::string& digest);
  /// Why the run cannot go on.
  [[nodiscard]] const std::optional<std::string>& difference() const { return difference_; }

 private:
  struct Told {
    std::string digest;
    std::string about;
    std::optional<OuterReplay> replay;
    std::string tensors = {};
  };
  struct Gone {
    int site = -1;
    Told told;
  };
  /// Whether the site is one of those who wait for one another after step t: it took part in it.
  /// Of two such a difference is settled, of others it ends the run.
  [[nodiscard]] bool settles(int site, std::int64_t t) const;
  static void note_down(Told& told, const OuterNote& note);
  void take(WorkerId from, const OuterNote& note);
  [[nodiscard]] Expected<void, std::string> take_gone(WorkerId from, const GoneNote& note);
  [[nodiscard]] GoneNote all_gone(std::uint32_t epoch) const;
  void compare(int site, std::int64_t t);
  /// What to do about starts that differ.
  [[nodiscard]] static std::string remedy_of_start(const Told& told, const Told& other);
  void tell_others(const Note& note, NotesOut& out) const;
  /// Digests that nobody is to be compared with any more go.
  void forget_compared();
  [[nodiscard]] const std::string& name(int site) const;

  const Options options_;
  std::vector<bool> live_;
  std::vector<std::int64_t> after_;  // by site: it takes part in the steps after this one
  std::map<std::int64_t, std::map<int, Told>> told_;            // by step, by site that is there
  std::map<std::int64_t, std::map<std::uint32_t, Gone>> gone_;  // by step, by the epoch it left in
  std::uint32_t epoch_ = 0;                                     // the last loss heard of here
  // By the epoch of a loss: who has not told yet what it has heard of those who are gone; of a loss
  // that has not been heard of here, who has.
  std::map<std::uint32_t, std::set<int>> owing_, ahead_;
  std::optional<std::string> difference_;
};

}  // namespace isthmus::app
