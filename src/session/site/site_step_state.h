// SPDX-License-Identifier: Apache-2.0
// The state that the parts of a SiteStepCoordinator share: agreements of the sites, digests of
// outer states, the membership, and why the run cannot continue. One lock guards all of it.
// SiteStepCoordinator owns the state; the parts borrow it.
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
#include "session/run/local_step_coordinator.h"
#include "session/site/digest_agreement.h"
#include "session/site/site_agreement.h"
#include "session/site/site_notes.h"

namespace isthmus::app {

struct SiteStepCoordinatorOptions {
  Wishes* wishes = nullptr;  // borrowed
  WorkerId self;
  std::vector<std::string> sites;  // names, in member order
  std::int64_t total_steps = 0;
  std::int64_t resumed_after = 0;  // steps taken before
  /// Sends a note to another site. Any task; keeps the order of one task's notes.
  std::function<void(WorkerId to, const Note&)> send;
  /// The loss of a site other than the first is no error: an epoch follows.
  bool elastic = false;
  int min_sites = 1;                       // with fewer sites all pause; no site may leave then
  Duration gather = kNever - TimePoint{};  // longest pause
  /// Whether a returning site is being taken in: a pause may then last longer.
  std::function<bool()> takes_in = {};
  /// All sites pause and wait for these sites; empty: they continue. Called by the worker. May be
  /// empty.
  std::function<void(const std::string& for_whom)> on_wait = {};
  std::int64_t window = 0;                         // SiteAgreement::set_window
  std::vector<WorkerId> relays = {}, hidden = {};  // SiteAgreement::set_relays
  /// The hub, numbered after the sites, which may be lost and restarted; otherwise site 0.
  WorkerId coordinator{0};
  /// Timeout of a step that waits for an absent hub.
  Duration patience = kNever - TimePoint{};
  /// This site joins a running run: until its epoch it sends no posts and writes no lines.
  bool joining = false;
  std::string about = {};  // this site's program and processor
  /// At site 0: sites have agreed on a step for a joiner. Called before any other site is told, and
  /// so before any site begins the step after it. Any task, without a lock. May be empty. RETURNS:
  /// whether the epoch of a join follows, which this site awaits before its next steps.
  std::function<bool(StepIndex)> on_join = {};
  /// The same for a site that leaves.
  std::function<bool(WorkerId, StepIndex)> on_leave = {};
};

struct SiteStepState {
  /// Borrows both.
  SiteStepState(SiteStepCoordinatorOptions options, Runtime& runtime, RunLog& log);

  /// Runs `step(outbox)` under the lock, then sends the notes.
  void drive(const std::function<void(NotesOut&)>& step);
  /// Sends to all other present sites.
  void tell_others(const Note& note) const;
  /// Whether this site takes part in step t.
  [[nodiscard]] bool takes_part(StepIndex t) const;
  /// The step at which this site ends before the last one, and why.
  [[nodiscard]] std::optional<std::pair<std::int64_t, Purpose>> end() const;
  /// THROWS: as SiteStepCoordinator::check.
  void check() const;
  /// THROWS: as SiteStepCoordinator::explain.
  void explain() const;
  /// The run cannot continue: a site that cannot be spared is lost. The first cause counts.
  void lose(const std::string& why);

  [[nodiscard]] bool has_hub() const { return options.coordinator != WorkerId(0); }
  [[nodiscard]] const std::string& name(WorkerId site) const {
    return options.sites[static_cast<std::size_t>(site.value())];
  }
  [[nodiscard]] TimePoint now() const { return runtime.clock().now(); }

  const SiteStepCoordinatorOptions options;
  Wishes& wishes;
  Runtime& runtime;
  LocalStepCoordinator whole;  // the lines of all sites; has its own lock
  std::unique_ptr<WaitQueue> queue;
  // Under the lock of `queue`:
  SiteAgreement agreement;
  DigestAgreement outer;
  std::optional<std::string> lost;
  std::exception_ptr failure;
  /// A step for a join or leave is agreed on, and no site may pass it yet.
  bool admitting = false;
  std::optional<std::int64_t> leaves_after;  // of this site
  // By site; written by the links' task alone.
  std::vector<bool> live;
  std::vector<std::int64_t> after;  // the site takes part in steps after this one
};

}  // namespace isthmus::app
