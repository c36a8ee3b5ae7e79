// SPDX-License-Identifier: Apache-2.0
// The state that the parts of a SiteSession share: what this site is and brings, and what it has
// heard from the others, behind one lock. SiteSession owns the state; the parts borrow it.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "isthmus/session.h"
#include "session/run/site_arguments.h"
#include "session/site/newcomer.h"
#include "session/site/site_lateness.h"
#include "session/site/site_notes.h"
#include "transport/links/network_transport.h"

namespace isthmus::app {

/// What a site brings.
struct SiteFacts {
  std::string run_id;                                       // fresh
  Digest128 layout;                                         // of the model
  std::vector<std::pair<std::string, std::string>> common;  // (what, value) alike at all sites
  bool resumes = false;
  std::filesystem::path folder = {};  // of its run, where it is known: for pieces of a state
  std::vector<HeldCheckpoint> held;
  bool unreadable = false;  // there are checkpoints beside them
  LateStatus late = {};     // in this process's sessions before
};

/// A join that came to nothing by chance: the donor has gone. It may be tried again at once.
class TryAgainError : public PeerError {
 public:
  explicit TryAgainError(const std::string& text) : PeerError(text) {}
};

struct SessionState {
  /// What sites have said before the run begins, and who came and went meanwhile.
  struct Meeting {
    std::vector<std::optional<HelloNote>> hellos;
    std::vector<bool> greeted;           // sites that were told what this one brings
    std::vector<bool> away;              // sites that were lost while all met, and are not back
    std::vector<std::uint64_t> returns;  // by site: how often a new process of it came
    bool meets = true;                   // what happens to others is of no run yet
    struct Met {                         // those of whom it was found that the run begins
      std::vector<std::optional<HelloNote>> hellos;
      std::vector<std::uint64_t> returns;
    };
    Met met;
    std::optional<StartNote> start;  // from the hub, or site 0
    TimePoint told_at;               // when site 0 has said that the run begins
  };
  /// What a site that comes late has been told.
  struct Arrival {
    std::optional<RunningNote> running;
    std::optional<WorkerId> donor;  // once the newcomer has been made for it
    std::optional<TurnedAwayNote> turned_away;
    std::vector<bool> seen_by;  // sites of the run that have answered a newcomer
    bool is_past = false;       // the run that the newcomer joins: the hub has begun another
  };
  /// What has become of the sites, and of this one's part in the run.
  struct Fate {
    std::optional<std::pair<WorkerId, std::string>> lost;
    std::exception_ptr failure;
    std::vector<bool> live;
    std::uint32_t newest_epoch = 0;  // that `live` is of
    std::vector<bool> asked;         // sites whose Hello came when nobody listened yet
    bool cut_off = false;
    bool leaves = false;                    // the run goes on without this site, as it has asked
    bool over = false;                      // too few are left, or this site was turned away
    std::optional<std::string> first_lost;  // site 0, or with a hub the donor; and why
    TimePoint first_lost_at;
    std::string in_session, in_run;  // of the hub, once this site is in the run
  };

  /// Borrows `config` and `wishes`.
  SessionState(const Config& config, const SiteArguments& arguments, const SiteFacts& facts,
               Wishes& wishes);

  [[nodiscard]] bool has_hub() const { return coordinator != WorkerId(0); }
  /// Whether site 0 says when the run begins. Sites come and go until then.
  [[nodiscard]] bool first_starts() const { return elastic && !has_hub(); }
  /// Under the lock of `queue`: the hub has begun without this site.
  [[nodiscard]] bool is_absent(std::size_t site) const;
  /// The site that gives its state to a newcomer.
  [[nodiscard]] WorkerId donor() const;
  [[nodiscard]] std::string name(WorkerId site) const;
  [[nodiscard]] std::vector<std::string> names() const;
  /// Under the lock of `queue`: the coordinator says that a run goes on, or that it begins with
  /// this site. A hub that begins anew from its log says the second after the first: what it has
  /// said of the session before is void. `joining`: this site has asked a donor for its state
  /// already.
  void hear_running(const RunningNote& note, bool joining);
  void hear_start(const StartNote& note, bool joining);
  [[nodiscard]] TimePoint now() { return runtime.clock().now(); }
  /// THROWS: Error once this site has been asked to stop.
  void check_stop(const std::string& waiting_for) const;

  const Config& config;
  const WorkerId self;
  const WorkerId coordinator;  // the hub's rank where there is one, else that of site 0
  const SiteFacts facts;
  Wishes& wishes;
  const bool elastic;     // a site other than the first may be lost
  const bool takes_back;  // rounds may be taken back: takes_steps_back
  SystemRuntime runtime;
  std::unique_ptr<WaitQueue> queue;
  // Under the lock of `queue`:
  Meeting meeting;
  Arrival arrival;
  Fate fate;
  /// Held during calls of the listener, host and newcomer; a call may bring another on the same
  /// task. Never taken with the lock of `queue`.
  std::recursive_mutex calls;
  SystemStorage storage;
  std::unique_ptr<Newcomer> newcomer;  // of a site that comes late; under `calls`
};

/// Of links that a peer refuses, or is refused: what the files differ in is theirs to mend, as is
/// what sites find in one another's greetings once they have met.
[[noreturn]] void throw_refused(const JoinError& error);

}  // namespace isthmus::app
