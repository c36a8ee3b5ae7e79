// SPDX-License-Identifier: Apache-2.0
// The state that the parts of a SiteBoard share: what the sites have agreed, what they have told of
// their outer states, who takes part, and why the run cannot go on. One lock guards all of it.
// SiteBoard owns the state; the parts borrow it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/runtime.h"
#include "session/run/run_board.h"
#include "session/site/outer_words.h"
#include "session/site/site_agreement.h"
#include "session/site/site_notes.h"

namespace isthmus::app {

struct SiteBoardOptions {
  Wishes* wishes = nullptr;  // borrowed
  WorkerId self;
  std::vector<std::string> sites;  // names, in member order
  std::int64_t total_steps = 0;
  std::int64_t resumed_after = 0;  // steps taken before
  /// Sends a note to another site. Any task; keeps the order of one task's notes.
  std::function<void(WorkerId to, const Note&)> send;
  /// The loss of a site other than the first is no error by itself: an epoch follows.
  bool elastic = false;
  int min_sites = 1;                       // nobody leaves so many; with fewer all wait,
  Duration gather = kNever - TimePoint{};  // for so long at most
  /// Whether a site that comes back is being taken in: all wait longer for that.
  std::function<bool()> takes_in = {};
  /// All wait for these sites; empty: they go on. By the worker. May be empty.
  std::function<void(const std::string& for_whom)> on_wait = {};
  std::int64_t window = 0;                         // SiteAgreement::set_window
  std::vector<WorkerId> relays = {}, hidden = {};  // SiteAgreement::set_relays
  /// Behind the sites: a hub, which may be lost and come back. Else site 0.
  WorkerId coordinator{0};
  /// So long a step waits for a hub that is away.
  Duration patience = kNever - TimePoint{};
  /// This site joins a run under way: until the epoch in which it does, it tells nobody of its
  /// steps and writes no lines.
  bool joining = false;
  std::string about = {};  // this site's program and processor
  /// At site 0: sites have agreed on a step for a joiner. Called before anybody else is told, and
  /// so before any site begins the step after it. Any task, without a lock. May be empty.
  /// RETURNS: whether the epoch of a join follows, which this site awaits before its next steps.
  std::function<bool(StepIndex)> on_join = {};
  /// The same of a site that leaves.
  std::function<bool(WorkerId, StepIndex)> on_leave = {};
};

struct SiteBoardState {
  /// Borrows both.
  SiteBoardState(SiteBoardOptions options, Runtime& runtime, RunLog& log);

  /// Runs `step(outbox)` under the lock, then sends.
  void drive(const std::function<void(NotesOut&)>& step);
  /// Sends to all others that take part.
  void tell_others(const Note& note) const;
  /// Whether this site takes part in step t.
  [[nodiscard]] bool takes_part(StepIndex t) const;
  /// At which step, and why, this site ends before the last one.
  [[nodiscard]] std::optional<std::pair<std::int64_t, Purpose>> end() const;
  /// THROWS: as SiteBoard::check.
  void check() const;
  /// THROWS: as SiteBoard::explain.
  void explain() const;
  /// The run cannot go on: a site that cannot be spared is gone. The first cause counts.
  void lose(const std::string& why);

  [[nodiscard]] bool has_hub() const { return options.coordinator != WorkerId(0); }
  [[nodiscard]] const std::string& name(WorkerId site) const {
    return options.sites[static_cast<std::size_t>(site.value())];
  }
  [[nodiscard]] TimePoint now() const { return runtime.clock().now(); }

  const SiteBoardOptions options;
  Wishes& wishes;
  Runtime& runtime;
  RunBoard whole;  // the lines of all sites; has a lock of its own
  std::unique_ptr<WaitQueue> queue;
  // Under the lock of `queue`:
  SiteAgreement agreement;
  OuterWords outer;
  std::optional<std::string> lost;
  std::exception_ptr failure;
  /// A step for a site that comes or goes is agreed on, and no site may pass it yet.
  bool admitting = false;
  std::optional<std::int64_t> leaves_after;  // this site
  // By site; written by the links' task alone.
  std::vector<bool> live;
  std::vector<std::int64_t> after;  // the site takes part in the steps after this one
};

}  // namespace isthmus::app
