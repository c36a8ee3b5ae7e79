// SPDX-License-Identifier: Apache-2.0
// The board of a run whose sites are processes of their own. Every site hears of every other's
// steps, in batches, so each of them writes the whole run's lines; they agree on steps to stop or
// to lay down a checkpoint (site_agreement.h), and compare the digests of their outer parameters
// wherever they know them. Where the run is elastic, sites go and come, told of by epochs.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/outer_words.h"
#include "app/run_board.h"
#include "app/site_agreement.h"
#include "app/site_session.h"
#include "core/hash.h"
#include "transport/epoch.h"

namespace isthmus::app {

class StatusBoard;

class SiteBoard final : public Board {
 public:
  struct Options {
    Rank self;
    std::vector<std::string> sites;  // names, in member order
    std::int64_t total_steps = 0;
    std::int64_t resumed_after = 0;  // steps taken before
    /// Sends a note to another site. Any task; keeps the order of one task's notes.
    std::function<void(Rank to, const Note&)> send;
    /// The loss of a site other than the first is no error by itself: an epoch follows.
    bool elastic = false;
    int min_sites = 1;                       // nobody leaves so many; with fewer all wait,
    Duration gather = kNever - TimePoint{};  // for so long at most
    /// Whether somebody who comes back is being taken in: for that all wait longer.
    std::function<bool()> takes_in = {};
    /// All wait for these sites; empty: they go on. By the worker. May be empty.
    std::function<void(const std::string& for_whom)> on_wait = {};
    std::int64_t window = 0;                     // SiteAgreement::set_window
    std::vector<Rank> relays = {}, hidden = {};  // SiteAgreement::set_relays
    /// Behind the sites: a hub, which may be lost and come back. Else site 0.
    Rank coordinator{0};
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
    std::function<bool(Rank, StepIndex)> on_leave = {};
  };
  /// Borrows both.
  SiteBoard(Options options, Runtime& runtime, RunLog& log);

  // From the worker.
  void attach(Runtime& runtime) override;
  void post_step(Rank rank, StepIndex t, StepPost post) override;
  void posted_steps() override;
  [[nodiscard]] std::vector<bool> present(StepIndex t) override { return whole_.present(t); }
  void post_eval(Rank rank, StepIndex t, const EvalShare& share) override;
  /// THROWS: PeerError, as explain.
  [[nodiscard]] std::vector<std::int64_t> await_eval(StepIndex t) override;
  void complete_eval(StepIndex t, const std::vector<EvalPart>& missing) override;
  [[nodiscard]] bool may_begin(StepIndex t) override;
  [[nodiscard]] bool begin_step(Rank rank, StepIndex t, bool checkpoint_due) override;
  [[nodiscard]] bool checkpoint_after(StepIndex t) override;
  [[nodiscard]] StopWish stop_after(StepIndex t) override;
  [[nodiscard]] StopWish stopped() const override;

  /// This site's outer state after step t, where it starts or joins; compared with the others' as
  /// they are heard. Any task.
  void tell_outer(StepIndex t, const Digest128& digest);
  [[nodiscard]] bool outer_agrees(StepIndex t, const Digest128& digest) override;
  void settle_outer(StepIndex t, const OuterReplay& replay) override;
  /// What became of this site's work of before it joined after step t. By the worker.
  void came_back(StepIndex t, const BroughtBack& work) { whole_.came_back(options_.self, t, work); }
  /// At a donor: a step for a joiner is wanted; Options::on_join is told of it. One at a time:
  /// while one is being agreed on, another wish is none. Any task.
  void wish_join(const WishNote& note);
  /// Sends what has been posted and not yet sent.
  void flush();
  /// Blocks until all sites' lines up to step t are written. THROWS: PeerError when one is gone.
  void await_lines(StepIndex t);
  /// THROWS: Error with ExitCode::kPeer when two sites' outer parameters were found to differ; what
  /// the links threw.
  void check() const;
  /// What became of a run whose rounds failed. THROWS: as check; PeerError naming the lost site.
  void explain() const;
  /// When this site's part began, on the runtime's clock; the run's lines count from there.
  [[nodiscard]] TimePoint start() const { return start_; }

  /// Whether this site may begin step `sent` now, of which a round is to be begun in its name: from
  /// then on it has. Any task.
  [[nodiscard]] bool may_stand_in(StepIndex sent);

  // From the links' task. THROWS: PeerError for a note that cannot be.
  void receive(Rank from, const Note& note);
  void lost(Rank site, const std::string& why);
  /// The hub's next process is there.
  void hub_back();
  /// Who is there has changed. A join is told of before any site begins the step after
  /// `epoch.after`.
  void epoch(const Epoch& epoch);
  /// The links failed: what they threw is thrown by whatever the worker does next.
  void fail(const std::exception_ptr& failure);

 private:
  /// Too few are there to begin step t: tells so once, and blocks for a moment, or until the run
  /// goes on. THROWS: Error when nobody has come back for too long.
  void stand_still(StepIndex t);
  void go_on();
  /// For people.
  [[nodiscard]] std::string too_few() const;
  /// Runs `step(outbox)` under the lock, then sends.
  void drive(const std::function<void(NotesOut&)>& step);
  void take(Rank from, const Note& note);
  void take_posts(Rank from, const PostsNote& note);
  void take_eval(Rank from, const EvalNote& note);
  void leave(const Epoch& epoch);
  /// It takes part up to step `epoch.after`.
  void take_leave(const Epoch& epoch);
  /// ... and has ended it.
  void part_with(const Epoch& epoch);
  /// At which step, and why, this site ends before the last one.
  [[nodiscard]] std::optional<std::pair<std::int64_t, Purpose>> end() const;
  void join(const Epoch& epoch);
  /// `site` takes part in the steps after `after`.
  void admit(Rank site, StepIndex after);
  /// Blocks until `ready`, under the lock. THROWS: as explain; PeerError where that takes too long.
  void await_outer(StepIndex t, const std::function<bool()>& ready);
  /// Whether this site takes part in step t.
  [[nodiscard]] bool takes_part(StepIndex t) const;
  /// Whether this site asks for the checkpoints that are due by time: one does.
  [[nodiscard]] bool asks_by_time() const;
  [[nodiscard]] bool has_hub() const { return options_.coordinator != Rank(0); }
  void tell_others(const Note& note) const;
  [[nodiscard]] const std::string& name(Rank site) const;
  [[nodiscard]] TimePoint now() const;

  const Options options_;
  Runtime& runtime_;
  StepIndex begun_ahead_;  // the last step that may_begin has begun; the worker's
  const TimePoint start_;
  RunBoard whole_;  // has a lock of its own
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  SiteAgreement agreement_;
  OuterWords outer_;
  std::optional<std::string> lost_;
  std::exception_ptr failure_;
  bool admitting_ =
      false;  // a step for who comes or goes is agreed on, and no site may pass it yet
  std::optional<std::int64_t> leaves_after_;  // this site
  std::vector<bool> live_;                    // by site; written by the links' task alone
  std::vector<std::int64_t> after_;  // by site: it takes part in the steps after this one; the same
  // The links' task's alone: what a site has told of steps that does not take part, as far as known
  // here; last step, and step of the last evaluation, that a site has told.
  std::vector<std::vector<Note>> early_;
  std::vector<std::optional<std::int64_t>> until_;  // it has taken leave, and tells up to this step
  std::vector<std::int64_t> told_;
  std::vector<std::int64_t> evaluated_;
  // The worker's alone:
  PostsNote unsent_;
  TimePoint last_sent_;
  std::size_t unsent_rounds_ = 0;
  TimePoint window_begin_;  // of steps whose mean length is taken
  std::int64_t window_steps_ = 0;
  std::optional<std::vector<bool>> stands_with_;  // who was there when that was last told of
  std::optional<TimePoint> stop_asked_;           // by a signal, while it stands
  TimePoint stands_since_;                        // or since somebody was last taken in
};

/// The board of this session's site. Borrows session, log and status, which may be null.
[[nodiscard]] std::unique_ptr<SiteBoard> make_site_board(SiteSession& session, const Config& config,
                                                         std::int64_t total_steps,
                                                         std::int64_t taken, RunLog& log,
                                                         StatusBoard* status);

/// Notes of `session` go to `board` while this lives. Borrows both; null: nothing to do.
class SiteConnection {
 public:
  SiteConnection(SiteSession* session, SiteBoard* board);
  ~SiteConnection();
  SiteConnection(const SiteConnection&) = delete;
  SiteConnection& operator=(const SiteConnection&) = delete;

 private:
  SiteSession* session_;
};

}  // namespace isthmus::app
