// SPDX-License-Identifier: Apache-2.0
// One site's part of a run whose sites are processes of their own: links to all others, what they
// must have alike, where they go on from. Sites may die and come back while the run goes on
// (`elastic`), but for the first, which says who is there; or any of them, where a hub does.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/join_host.h"
#include "app/measured_rounds.h"
#include "app/newcomer.h"
#include "app/site_lateness.h"
#include "app/site_notes.h"
#include "app/state_server.h"
#include "app/state_source.h"
#include "core/events.h"
#include "core/storage.h"
#include "core/system_runtime.h"
#include "inner/data/dataset.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "transport/epoch.h"
#include "transport/joining_exchange.h"
#include "transport/network_transport.h"
#include "transport/peer_exchange.h"
#include "transport/recording_transport.h"

namespace isthmus::app {

class SiteRecording;
class SiteRoutes;
class StatusBoard;
class WatchedTransport;

/// Place of the site. THROWS: ConfigError naming the sites there are, and what keeps the
/// configuration from running over links: addresses, keys, a method that needs one process.
[[nodiscard]] Rank site_of(const Config& config, const SiteArguments& arguments);

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

/// What tells data apart: files by place, size and SHA-256; of many, a digest of all.
void append_data(std::span<const DataFile> files,
                 std::vector<std::pair<std::string, std::string>>& common);

/// What all sites start from.
struct SiteStart {
  std::string run_id;
  std::optional<std::int64_t> resume_after;  // a checkpoint's step that every site has
  /// The run begins anew: not all sites have its first checkpoint, which is of this step.
  std::optional<std::int64_t> given_up = std::nullopt;
  /// Places of sites that hold nothing to go on from there: they join once the run has begun.
  std::vector<std::size_t> without = {};
  /// The run goes on already, and this site has fetched a worker's state to go on from.
  std::optional<OfferNote> joins = std::nullopt;
};
/// THROWS: ConfigError naming the keys that differ, with both values.
void check_alike(const std::vector<std::string>& sites, const std::vector<HelloNote>& facts);
/// Pure. `facts`: of every site, in order. `enough`: with how many, the first among them, the run
/// may begin where it goes on; nothing: with all. `interval`: steps between checkpoints, 0 where
/// they are not counted. Where the first one, after so many, is all that anybody has, and some have
/// none, the run begins anew. THROWS: ConfigError as check_alike, or that no checkpoint
/// is everywhere the same.
[[nodiscard]] SiteStart agree_on_start(const std::vector<std::string>& sites,
                                       const std::vector<HelloNote>& facts,
                                       std::optional<std::size_t> enough = std::nullopt,
                                       std::int64_t interval = 0);

/// Rounds sent by a step have ended at all sites once they have taken so many more.
[[nodiscard]] inline std::int64_t join_window(const Config& config) {
  return 2 * config.outer.H + 1;
}

/// What two sites do not have in common, by key, for people; empty: nothing.
[[nodiscard]] std::string differences(const std::string& site, const HelloNote& note,
                                      const std::string& other, const HelloNote& others);

/// A join that came to nothing by chance: the donor has gone. It may be tried again at once.
class TryAgainError : public PeerError {
 public:
  explicit TryAgainError(const std::string& text) : PeerError(text) {}
};

class SiteSession {
 public:
  /// Listens. Borrows `status` and `recording`, which may be null: frames are then written down
  /// nowhere. THROWS: ConfigError, SystemError for an address, key or recording that cannot be
  /// used.
  SiteSession(const Config& config, const SiteArguments& arguments, const SiteFacts& facts,
              StatusBoard* status = nullptr, SiteRecording* recording = nullptr);
  /// Ends the links: in order after `leave`, otherwise the others see this site as lost.
  ~SiteSession();
  SiteSession(const SiteSession&) = delete;
  SiteSession& operator=(const SiteSession&) = delete;

  /// What else this site does while it looks for the others.
  struct Meanwhile {
    std::function<bool()> goes_on;  // net.gather counts from when it does no more
    std::function<void()> end;      // they are found. Blocks
  };
  /// Dials, and blocks until all sites are together and have said what they bring, for at most
  /// net.gather; or, where they have gone on without this one, until a worker's state is here.
  /// `say`: a line for people now and then. THROWS: PeerError naming who is missing, refused or
  /// gone; ConfigError as agree_on_start; RunError after a signal.
  [[nodiscard]] SiteStart gather(const std::function<void(const std::string&)>& say,
                                 Meanwhile meanwhile);

  [[nodiscard]] Rank self() const { return self_; }
  [[nodiscard]] Runtime& runtime() { return runtime_; }
  /// The worker's.
  [[nodiscard]] Exchange& exchange();
  /// As PeerExchange has it. From the worker.
  [[nodiscard]] ResultOrigin origin_of(const SyncId& id) const { return exchange_->origin_of(id); }
  /// Whether a site other than the first may be lost.
  [[nodiscard]] bool elastic() const { return elastic_; }
  /// Whether rounds may be taken back: takes_steps_back.
  [[nodiscard]] bool takes_back() const { return takes_back_; }
  /// The hub's rank where there is one, else that of site 0.
  [[nodiscard]] Rank coordinator() const { return coordinator_; }
  [[nodiscard]] bool has_hub() const { return coordinator_ != Rank(0); }
  /// After a round has failed: whether the others go on without this site, or wait for the first,
  /// which it has lost. Blocks until the news are here, a moment behind the round's end, or 2 s.
  [[nodiscard]] bool cut_off();
  /// After a gather that `joins`; else null.
  [[nodiscard]] Newcomer* newcomer() { return newcomer_.get(); }
  void send(Rank to, const Note& note);
  /// How long rounds took here, from the session's start.
  [[nodiscard]] RoundTimes rounds() const { return rounds_.so_far(); }

  /// Who hears of what comes from the links.
  struct Listener {
    std::function<void(Rank, const Note&)> on_note;
    std::function<void(Rank, const std::string&)> on_lost;
    std::function<void(const Epoch&)> on_epoch;
    std::function<void(const std::exception_ptr&)> on_failure;
    std::function<void()> on_hub_back = {};
  };
  /// From now on, what came before included. Called by the links' task, one call at a time, but
  /// epochs that `admit` brings by its caller.
  void connect(Listener listener);
  /// No call of what `connect` was given is made after this.
  void disconnect();

  /// In an elastic run: newcomers are given state from now on; by site 0, or at all with a hub,
  /// they are taken in. `wish`: the sites shall agree on a step for one. `window`: as
  /// JoinHost::Options.
  void take_newcomers(const std::string& run_id, std::function<void(const WishNote&)> wish,
                      std::int64_t window, std::int64_t total_steps);
  /// The sites have agreed: the newcomer takes part in rounds sent after step t.
  /// RETURNS: whether it does, an epoch then having begun. Any task.
  bool admit(StepIndex t);
  /// ... that `site` leaves: it takes part in rounds sent by step t. RETURNS: as admit. Any task.
  bool release(Rank site, StepIndex t) { return exchange_->release(site, t.value()); }
  /// From the worker, between two steps. `stands`: all sites stand after step t, for now; called
  /// again while they do.
  void after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy,
                  bool stands = false);
  /// From the worker, which goes on after step t: what it has taken since does not count.
  void gone_back(StepIndex t);
  /// Whether somebody who comes back is being taken in, as far as is known here. Any task.
  [[nodiscard]] bool takes_in() const { return source_.takes_in(); }
  /// Whether training step t is late for a round that has been begun without it. From the worker.
  [[nodiscard]] bool skips(StepIndex t) {
    return lateness_.skips(t, exchange_->begun_ahead(), exchange_->missed_in_a_row());
  }
  [[nodiscard]] SiteLateness& lateness() { return lateness_; }
  /// How late this site has been so far; nothing where rounds have no deadline. Any task.
  [[nodiscard]] std::optional<LateStatus> late() {
    return config_.net.deadline ? std::optional(lateness_.so_far()) : std::nullopt;
  }
  /// Waiting spans go there from now on; null: nowhere.
  void record_into(EventSink* events);
  /// Serves the others until all have finished, for at most net.patience.
  void leave();

 private:
  class Events;
  /// Null: this site is no donor.
  [[nodiscard]] JoinHost* host();
  void open_exchange();
  [[nodiscard]] HelloNote hello() const;
  void say_hello(Rank to);
  /// Blocks until all are linked, or site 0 has said that the run goes on.
  void meet(const std::function<void(const std::string&)>& say);
  /// Until when the others are looked for, as it stands now.
  [[nodiscard]] TimePoint gather_end();
  /// To those who have not been told, this process, since they came.
  void say_hellos();
  /// Whether site 0 says when the run begins. Sites come and go until then.
  [[nodiscard]] bool first_starts() const { return elastic_ && !has_hub(); }
  /// Under queue_'s lock: whether all that a start needs has been said.
  [[nodiscard]] bool may_start() const;
  /// While the sites meet. THROWS: ConfigError as agree_on_start, once all who have to hear of it
  /// have been told what this site brings; TryAgainError where site 0 has gone, of whose next
  /// process this session knows nothing.
  void check_meeting();
  [[nodiscard]] std::optional<std::size_t> enough() const;
  /// For people: what keeps the run from beginning.
  [[nodiscard]] std::string awaits() const;
  void back(Rank site);
  /// The hub's next process knows this run.
  void serve();
  [[nodiscard]] std::vector<Rank> awaited() const;
  [[nodiscard]] bool is_absent(std::size_t site) const;
  [[nodiscard]] Rank donor() const;
  /// What site 0 has said to this newcomer, if that ends it. THROWS: ConfigError, PeerError.
  void check_turned_away();
  /// Blocks until all sites that are in the run have answered this one. RETURNS: who they are.
  [[nodiscard]] std::vector<int> find_all(TimePoint deadline);
  [[nodiscard]] SiteStart start_together();
  void tell_start(const SiteStart& start);
  [[nodiscard]] SiteStart come_late(TimePoint deadline,
                                    const std::function<void(const std::string&)>& say);
  void take(Rank from, std::span<const std::byte> bytes);
  void lose(Rank site, const std::string& why);
  void enter(const Epoch& epoch);
  void fail(const std::exception_ptr& failure);
  [[nodiscard]] std::string name(Rank site) const;
  [[nodiscard]] std::vector<std::string> names() const;

  const Config& config_;
  const Rank self_;
  const Rank coordinator_;
  const SiteFacts facts_;
  const bool elastic_;
  const bool takes_back_;
  SystemRuntime runtime_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  std::vector<std::optional<HelloNote>> hellos_;
  std::vector<bool> greeted_;           // sites that were told what this one brings
  std::vector<bool> away_;              // sites that were lost while all met, and are not back
  std::vector<std::uint64_t> returns_;  // by site: how often a new process of it came
  bool meets_ = true;                   // what happens to others is of no run yet
  struct Met {                          // those of whom it was found that the run begins
    std::vector<std::optional<HelloNote>> hellos;
    std::vector<std::uint64_t> returns;
  };
  Met met_;
  std::optional<RunningNote> running_;
  std::optional<Rank> donor_;        // once newcomer_ has been made for it
  std::optional<StartNote> start_;   // from the hub, or site 0
  std::string in_session_, in_run_;  // of the hub, once this site is in the run
  std::optional<TurnedAwayNote> turned_away_;
  std::optional<std::pair<Rank, std::string>> lost_;
  std::exception_ptr failure_;
  std::vector<bool> live_;
  std::uint32_t newest_epoch_ = 0;  // that live_ is of
  std::vector<bool> asked_;         // sites whose Hello came when nobody listened yet
  std::vector<bool> seen_by_;       // sites of the run that have answered a newcomer
  bool cut_off_ = false;
  bool leaves_ = false;                    // the run goes on without this site, as it has asked
  bool over_ = false;                      // too few are left, or this site was turned away
  std::optional<std::string> first_lost_;  // site 0, or with a hub the donor; and why
  TimePoint first_lost_at_;
  TimePoint told_at_;  // when site 0 has said that the run begins
  // Of who gathers alone:
  Meanwhile meanwhile_;
  TimePoint gather_end_;

  // Calls of the listener, host and newcomer; a call may bring another on the same task. Never
  // taken with queue_'s lock.
  std::recursive_mutex calls_;
  std::optional<Listener> listener_;
  std::vector<std::pair<Rank, Note>> early_;
  std::vector<Epoch> early_epochs_;
  StateSource source_;  // has a lock of its own
  std::unique_ptr<JoinHost> host_;
  SystemStorage storage_;
  std::unique_ptr<Newcomer> newcomer_;

  TimePoint begin_;
  MeasuredRounds rounds_;
  std::unique_ptr<Events> events_;
  FrameRecorder* const recorder_;       // null: nothing is recorded
  const MemberOptions links_;           // of no use under MPI
  std::unique_ptr<SiteRoutes> routes_;  // null under MPI; ends after the transport
  std::unique_ptr<NetworkTransport> transport_;
  std::unique_ptr<RecordingTransport> recording_;  // null: nothing is recorded
  std::unique_ptr<WatchedTransport> watched_;
  SiteLateness lateness_{carries_lost(config_), facts_.late};
  std::unique_ptr<PeerExchange> exchange_;
  std::unique_ptr<ForwardingExchange> forwarding_;  // at who may be a donor
  std::unique_ptr<StateServer> server_;             // while newcomers are given state; under calls_
};

}  // namespace isthmus::app
