// SPDX-License-Identifier: Apache-2.0
// The board of a run whose sites are separate processes. Every site receives every other site's
// steps, in batches, and so writes the whole run's lines. The sites agree on steps to stop or to
// save a checkpoint (site_agreement.h), and compare the digests of their outer parameters whenever
// they know them. In an elastic run sites join and leave, announced by epochs.
//
// The board itself is the worker's interface: steps posted, steps begun. Its parts share one state:
// SiteMembers (notes and epochs from the links), OuterSettling (digests of outer states) and
// SiteStandstill (the pause while too few sites are present). site_connection.h connects the board
// to a session.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "session/run/local_step_coordinator.h"
#include "session/site/outer_settling.h"
#include "session/site/site_members.h"
#include "session/site/site_standstill.h"
#include "session/site/site_step_state.h"
#include "transport/wire/epoch.h"

namespace isthmus::app {

class SiteStepCoordinator final : public Board {
 public:
  using Options = SiteStepCoordinatorOptions;
  /// Borrows both.
  SiteStepCoordinator(Options options, Runtime& runtime, RunLog& log);

  // From the worker.
  void attach(Runtime& runtime) override;
  void post_step(WorkerId rank, StepIndex t, StepPost post) override;
  void posted_steps() override;
  [[nodiscard]] std::vector<bool> present(StepIndex t) override { return all_.whole.present(t); }
  void post_eval(WorkerId rank, StepIndex t, const EvalShare& share) override;
  /// THROWS: PeerError, as explain.
  [[nodiscard]] std::vector<std::int64_t> await_eval(StepIndex t) override;
  void complete_eval(StepIndex t, const std::vector<EvalPart>& missing) override {
    all_.whole.complete_eval(t, missing);
  }
  [[nodiscard]] bool may_begin(StepIndex t) override;
  [[nodiscard]] bool begin_ahead(StepIndex t) override { return may_stand_in(t); }
  [[nodiscard]] bool begin_step(WorkerId rank, StepIndex t, bool checkpoint_due) override;
  [[nodiscard]] bool checkpoint_after(StepIndex t) override;
  [[nodiscard]] StopWish stop_after(StepIndex t) override;
  [[nodiscard]] StopWish stopped() const override;

  /// This site's outer state after step t, at its start or join; compared with the others' as they
  /// arrive. `tensors`: as digests_of_start, or empty. Any task.
  void tell_outer(StepIndex t, const Digest128& digest, const std::string& tensors = {}) {
    settling_.tell(t, digest, tensors);
  }
  [[nodiscard]] bool outer_agrees(StepIndex t, const Digest128& digest) override;
  void settle_outer(StepIndex t, const OuterReplay& replay) override {
    settling_.settle(t, replay);
  }
  /// The outcome of the work that this site had before it joined after step t. Called by the
  /// worker.
  void came_back(StepIndex t, const RejoinReport& work) {
    all_.whole.came_back(all_.options.self, t, work);
  }
  /// At a donor: asks for a step for a joiner; Options::on_join receives it. One at a time: no
  /// effect while another wish is open. Any task.
  void wish_join(const WishNote& note);
  /// Sends all unsent posts.
  void flush();
  /// Blocks until all sites' lines up to step t are written. THROWS: PeerError when a site is lost.
  void await_lines(StepIndex t);
  /// THROWS: Error with ExitCode::kPeer when two sites' outer parameters differ; the error of the
  /// links, if they failed.
  void check() const { all_.check(); }
  /// Explains failed rounds of the run. THROWS: as check; PeerError naming the lost site.
  void explain() const { all_.explain(); }
  /// When this site's part began, on the runtime's clock; the run's lines count from there.
  [[nodiscard]] TimePoint start() const { return start_; }

  /// Whether this site may begin step `sent` now, for a round by proxy for example; if so, the step
  /// has begun. Any task.
  [[nodiscard]] bool may_stand_in(StepIndex sent);

  // From the links' task. THROWS: PeerError for an invalid note.
  void receive(WorkerId from, const Note& note) { members_.receive(from, note); }
  void lost(WorkerId site, const std::string& why) { members_.lost(site, why); }
  /// The hub's next process is there.
  void hub_back();
  /// The membership has changed. A join is announced before any site begins the step after
  /// `epoch.after`.
  void epoch(const Epoch& epoch) { members_.epoch(epoch); }
  /// The links failed: the next call of the worker throws their error.
  void fail(const std::exception_ptr& failure);

 private:
  /// Whether this site requests the checkpoints that are due by time: exactly one site does.
  [[nodiscard]] bool asks_by_time() const;
  /// Tells the agreement how far ahead this site's answers lie, from the mean length of the steps
  /// before t.
  void look_ahead(StepIndex t);

  const TimePoint start_;
  SiteStepState all_;
  SiteMembers members_{all_};  // the links' task's alone
  // The worker's alone:
  OuterSettling settling_{all_};
  SiteStandstill standstill_{all_};
  StepIndex begun_ahead_;  // by may_begin
  PostsNote unsent_;
  TimePoint last_sent_;
  std::size_t unsent_rounds_ = 0;
  TimePoint window_begin_;  // of the steps in the mean length
  std::int64_t window_steps_ = 0;
  StepIndex looked_at_;  // step of the last look_ahead
};

}  // namespace isthmus::app
