// SPDX-License-Identifier: Apache-2.0
// Agreement of the sites on digests of their outer states. At each common checkpoint every site
// sends its digest and waits for the digests of all sites that took the step. If the digests
// differ, each site replays the committed results, sends the digest of its replay, and waits again
// (session/run/divergence_rule.h). A lost site may have reached some survivors and not others. So
// on a loss each survivor rebroadcasts, once, all digests that it got from lost sites, and waits
// for the rebroadcasts of the others before it decides. Then all survivors hold the same digests,
// and decide alike, since the decision depends on the digests alone. A second loss meanwhile is
// handled in the same way, and its rebroadcast includes the first. A state machine: notes in, notes
// out; it does not know time or threads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "session/run/divergence_rule.h"
#include "session/site/site_agreement.h"
#include "session/site/site_notes.h"
#include "transport/wire/epoch.h"

namespace isthmus::app {

class DigestAgreement {
 public:
  struct Options {
    WorkerId self;
    std::vector<std::string> sites = {};  // names, in member order
    std::string about = {};               // this site's program and processor
    std::int64_t resumed_after = 0;       // steps taken before
    bool joining = false;                 // no site is present before `join`
  };
  explicit DigestAgreement(Options options);

  /// Sends this site's digest after step t. `tensors`: digests by tensor (session/run/run_start.h),
  /// or empty.
  void tell(StepIndex t, const std::string& digest, NotesOut& out, const std::string& tensors = {});
  void tell_replay(StepIndex t, const OuterReplay& replay, NotesOut& out);
  /// It cannot be decided whose state is wrong: the run ends at all sites, also at sites that lack
  /// the digests to see it.
  void give_up(const std::string& why, NotesOut& out);
  /// Handles OuterNote, GoneNote and DifferNote; ignores all other notes. RETURNS: the reason if
  /// the note is invalid.
  [[nodiscard]] Expected<void, std::string> receive(WorkerId from, const Note& note);
  /// `epoch.who` takes part no more: it is lost, or has left in order.
  void leave(const Epoch& epoch, NotesOut& out);
  /// `site` takes part in the steps after `after`.
  void join(WorkerId site, StepIndex after);

  /// RETURNS: whether all sites that took step t hold the same state after it; nothing while
  /// unknown.
  [[nodiscard]] std::optional<bool> alike(StepIndex t) const;
  /// RETURNS: the words of all sites that took step t, in site order, then the known words of lost
  /// sites; nothing while a replay is missing.
  [[nodiscard]] std::optional<std::vector<OuterWord>> words(StepIndex t) const;
  /// All sites hold this digest after step t, from now on.
  void healed(StepIndex t, const std::string& digest);
  /// Why the run cannot continue.
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
  /// Whether the site waits for the others after step t, because it took part in the step. A
  /// difference between two such sites is settled; any other difference ends the run.
  [[nodiscard]] bool settles(int site, std::int64_t t) const;
  static void note_down(Told& told, const OuterNote& note);
  void take(WorkerId from, const OuterNote& note);
  [[nodiscard]] Expected<void, std::string> take_gone(WorkerId from, const GoneNote& note);
  [[nodiscard]] GoneNote all_gone(std::uint32_t epoch) const;
  void compare(int site, std::int64_t t);
  /// The remedy for starts that differ.
  [[nodiscard]] static std::string remedy_of_start(const Told& told, const Told& other);
  void tell_others(const Note& note, NotesOut& out) const;
  /// Drops digests that will not be compared any more.
  void forget_compared();
  [[nodiscard]] const std::string& name(int site) const;

  const Options options_;
  std::vector<bool> live_;
  std::vector<std::int64_t> after_;                   // by site: takes part in steps after this one
  std::map<std::int64_t, std::map<int, Told>> told_;  // by step, by present site
  std::map<std::int64_t, std::map<std::uint32_t, Gone>> gone_;  // by step, by the epoch of its loss
  std::uint32_t epoch_ = 0;                                     // of the last loss known here
  // By the epoch of a loss: survivors whose rebroadcast is missing; for losses unknown here,
  // survivors that already sent theirs.
  std::map<std::uint32_t, std::set<int>> owing_, ahead_;
  std::optional<std::string> difference_;
};

}  // namespace isthmus::app
