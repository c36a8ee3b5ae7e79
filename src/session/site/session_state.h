// SPDX-License-Identifier: Apache-2.0
// The state that the parts of a SiteSession share: facts of this site, and news from the other
// sites, behind one lock. SiteSession owns the state; the parts borrow it.
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
#include "session/site/joiner.h"
#include "session/site/site_lateness.h"
#include "session/site/site_notes.h"
#include "transport/links/network_transport.h"

namespace isthmus::app {

/// Facts that a site reports at its start.
struct SiteFacts {
  std::string run_id;                                       // fresh
  Digest128 layout;                                         // of the model
  std::vector<std::pair<std::string, std::string>> common;  // must be equal at all sites
  bool resumes = false;
  std::filesystem::path folder = {};  // of the run, if known: for saved pieces
  std::vector<HeldCheckpoint> held;
  bool unreadable = false;  // there are further, unreadable checkpoints
  LateStatus late = {};     // from earlier sessions of this process
};

/// A join failed by chance, because the donor was lost; it may be tried again at once.
class TryAgainError : public PeerError {
 public:
  explicit TryAgainError(const std::string& text) : PeerError(text) {}
};

struct SessionState {
  /// Greetings of the sites before the run begins, and losses and returns meanwhile.
  struct Meeting {
    std::vector<std::optional<HelloNote>> hellos;
    std::vector<bool> greeted;           // sites that have this site's greeting
    std::vector<bool> away;              // sites lost while all met, not back yet
    std::vector<std::uint64_t> returns;  // by site: its restart count
    bool meets = true;                   // before the run begins, losses have no effect on it
    struct Met {                         // at the decision that the run begins
      std::vector<std::optional<HelloNote>> hellos;
      std::vector<std::uint64_t> returns;
    };
    Met met;
    std::optional<StartNote> start;  // from the hub, or site 0
    TimePoint told_at;               // when site 0 sent the start of the run
  };
  /// Notes that a site received that joins late.
  struct Arrival {
    std::optional<RunningNote> running;
    std::optional<WorkerId> donor;  // once the Newcomer was made for it
    std::optional<TurnedAwayNote> turned_away;
    std::vector<bool> seen_by;  // sites of the run that answered a joiner
    bool is_past = false;       // the joined run is over: the hub began another
  };
  /// The state of the sites, and of this site's part in the run.
  struct Fate {
    std::optional<std::pair<WorkerId, std::string>> lost;
    std::exception_ptr failure;
    std::vector<bool> live;
    std::uint32_t newest_epoch = 0;  // of `live`
    std::vector<bool> asked;         // sites whose Hello came before a listener
    bool cut_off = false;
    bool leaves = false;                    // by its own wish; the run continues
    bool over = false;                      // too few are left, or this site was refused
    std::optional<std::string> first_lost;  // site 0, or with a hub the donor: the cause
    TimePoint first_lost_at;
    std::string in_session, in_run;  // the hub's, once this site is in the run
  };

  /// Borrows `config` and `wishes`.
  SessionState(const Config& config, const SiteArguments& arguments, const SiteFacts& facts,
               Wishes& wishes);

  [[nodiscard]] bool has_hub() const { return coordinator != WorkerId(0); }
  /// Whether site 0 starts the run; sites may come and go until then.
  [[nodiscard]] bool first_starts() const { return elastic && !has_hub(); }
  /// Under the lock of `queue`: whether the hub began without this site.
  [[nodiscard]] bool is_absent(std::size_t site) const;
  /// The donor of a joiner.
  [[nodiscard]] WorkerId donor() const;
  [[nodiscard]] std::string name(WorkerId site) const;
  [[nodiscard]] std::vector<std::string> names() const;
  /// Under the lock of `queue`: the coordinator tells that a run is running, or that it begins with
  /// this site. A hub that begins anew from its log sends the start after the running note, which
  /// makes its earlier notes void. `joining`: this site has already asked a donor for its state.
  void hear_running(const RunningNote& note, bool joining);
  void hear_start(const StartNote& note, bool joining);
  [[nodiscard]] TimePoint now() { return runtime.clock().now(); }
  /// THROWS: Error with the wish's exit code once this site has been asked to stop.
  void check_stop(const std::string& waiting_for) const;

  const Config& config;
  const WorkerId self;
  const WorkerId coordinator;  // WorkerId of the hub, or of site 0
  const SiteFacts facts;
  Wishes& wishes;
  const bool elastic;     // sites other than the first may be lost
  const bool takes_back;  // rounds may be rolled back: takes_steps_back
  SystemRuntime runtime;
  std::unique_ptr<WaitQueue> queue;
  // Under the lock of `queue`:
  Meeting meeting;
  Arrival arrival;
  Fate fate;
  /// Held during calls of the listener, the StateDonor and the Newcomer; a call may cause another
  /// on the same task. Never taken together with the lock of `queue`.
  std::recursive_mutex calls;
  SystemStorage storage;
  std::unique_ptr<Joiner> newcomer;  // at a joiner; under `calls`
};

/// For a refused link. THROWS: ConfigError if the sites' files differ, PeerError otherwise.
[[noreturn]] void throw_refused(const JoinError& error);

}  // namespace isthmus::app
