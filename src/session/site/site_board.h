// SPDX-License-Identifier: Apache-2.0
// The board of a run whose sites are processes of their own. Every site hears of every other's
// steps, in batches, so each of them writes the whole run's lines; they agree on steps to stop or
// to lay down a checkpoint (site_agreement.h), and compare the digests of their outer parameters
// wherever they know them. Where the run is elastic, sites go and come, told of by epochs.
//
// The board itself is what the worker meets: steps posted, steps begun. Its parts share one state:
// SiteMembers (notes and epochs from the links), OuterSettling (digests of outer states) and
// SiteStandstill (the wait while too few sites are there). site_connection.h joins it to a session.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "session/run/run_board.h"
#include "session/site/outer_settling.h"
#include "session/site/site_board_state.h"
#include "session/site/site_members.h"
#include "session/site/site_standstill.h"
#include "transport/wire/epoch.h"

namespace isthmus::app {

class SiteBoard final : public Board {
 public:
  using Options = SiteBoardOptions;
  /// Borrows both.
  SiteBoard(Options options, Runtime& runtime, RunLog& log);

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

  /// This site's outer state after step t, where it starts or joins; compared with the others' as
  /// they are heard. `tensors`: as digests_of_start, or empty. Any task.
  void tell_outer(StepIndex t, const Digest128& digest, const std::string& tensors = {}) {
    settling_.tell(t, digest, tensors);
  }
  [[nodiscard]] bool outer_agrees(StepIndex t, const Digest128& digest) override;
  void settle_outer(StepIndex t, const OuterReplay& replay) override {
    settling_.settle(t, replay);
  }
  /// What became of this site's work of before it joined after step t. By the worker.
  void came_back(StepIndex t, const BroughtBack& work) {
    all_.whole.came_back(all_.options.self, t, work);
  }
  /// At a donor: a step for a joiner is wanted; Options::on_join is told of it. One at a time:
  /// while one is being agreed on, another wish is none. Any task.
  void wish_join(const WishNote& note);
  /// Sends what has been posted and not yet sent.
  void flush();
  /// Blocks until all sites' lines up to step t are written. THROWS: PeerError when one is gone.
  void await_lines(StepIndex t);
  /// THROWS: Error with ExitCode::kPeer when two sites' outer parameters were found to differ; what
  /// the links threw.
  void check() const { all_.check(); }
  /// What became of a run whose rounds failed. THROWS: as check; PeerError naming the lost site.
  void explain() const { all_.explain(); }
  /// When this site's part began, on the runtime's clock; the run's lines count from there.
  [[nodiscard]] TimePoint start() const { return start_; }

  /// Whether this site may begin step `sent` now, of which a round is to be begun in its name, say:
  /// from then on it has. Any task.
  [[nodiscard]] bool may_stand_in(StepIndex sent);

  // From the links' task. THROWS: PeerError for a note that cannot be.
  void receive(WorkerId from, const Note& note) { members_.receive(from, note); }
  void lost(WorkerId site, const std::string& why) { members_.lost(site, why); }
  /// The hub's next process is there.
  void hub_back();
  /// Who is there has changed. A join is told of before any site begins the step after
  /// `epoch.after`.
  void epoch(const Epoch& epoch) { members_.epoch(epoch); }
  /// The links failed: what they threw is thrown by whatever the worker does next.
  void fail(const std::exception_ptr& failure);

 private:
  /// Whether this site asks for the checkpoints that are due by time: one site does.
  [[nodiscard]] bool asks_by_time() const;
  /// Tells the agreement how far ahead this site's answers lie, by the mean length of steps, of
  /// which t is the next.
  void look_ahead(StepIndex t);

  const TimePoint start_;
  SiteBoardState all_;
  SiteMembers members_{all_};  // the links' task's alone
  // The worker's alone:
  OuterSettling settling_{all_};
  SiteStandstill standstill_{all_};
  StepIndex begun_ahead_;  // the last step that may_begin has begun
  PostsNote unsent_;
  TimePoint last_sent_;
  std::size_t unsent_rounds_ = 0;
  TimePoint window_begin_;  // of steps whose mean length is taken
  std::int64_t window_steps_ = 0;
  StepIndex looked_at_;  // the step at which that was last looked at
};

}  // namespace isthmus::app
