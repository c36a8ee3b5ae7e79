// SPDX-License-Identifier: Apache-2.0
// One site's part of a run whose sites are separate processes: links to all others, the values that
// must be equal, and where the run continues. In an `elastic` run sites may die and rejoin, except
// site 0, which coordinates; with a hub any site may.
//
// The session passes the exchange's news to its listener, to the StateDonor, or to the Newcomer
// that this site is. Its parts share one state: SiteMeeting (how the session begins) and
// LateArrival (a site that joins a running run).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/data_file.h"
#include "core/base/events.h"
#include "isthmus/config.h"
#include "session/run/site_arguments.h"
#include "session/run/worker_site.h"
#include "session/site/joiner.h"
#include "session/site/late_arrival.h"
#include "session/site/session_links.h"
#include "session/site/session_state.h"
#include "session/site/site_meeting.h"
#include "session/site/site_notes.h"
#include "session/site/site_start.h"
#include "session/site/state_donor.h"
#include "session/site/state_server.h"
#include "session/site/state_source.h"
#include "transport/wire/epoch.h"

namespace isthmus::app {

/// Identity of the data: files by place, size and SHA-256; of many files one digest.
void append_data(std::span<const DataFile> files,
                 std::vector<std::pair<std::string, std::string>>& common);

class SiteSession final : public WorkerSite {
 public:
  /// Listens. Borrows `wishes`, and `status` and `recording`, which may be null: frames are then
  /// not recorded. THROWS: ConfigError, SystemError for an unusable address, key or recording.
  SiteSession(const Config& config, const SiteArguments& arguments, const SiteFacts& facts,
              Wishes& wishes, StatusBoard* status = nullptr, SiteRecording* recording = nullptr);
  /// Ends the links: in order after `leave`; otherwise the others see this site as lost.
  ~SiteSession();
  SiteSession(const SiteSession&) = delete;
  SiteSession& operator=(const SiteSession&) = delete;

  using Meanwhile = SiteMeeting::Meanwhile;
  /// Dials, and blocks until all sites have met and exchanged greetings, for at most net.gather;
  /// or, if the run is already running, until a worker's state is here. `say`: a line for people
  /// now and then. THROWS: PeerError naming a site that is missing, refused or lost; ConfigError as
  /// agree_on_start; Error with the wish's exit code (130 or 85) after a wish to stop.
  [[nodiscard]] SiteStart gather(const std::function<void(const std::string&)>& say,
                                 Meanwhile meanwhile);

  [[nodiscard]] Wishes& wishes() { return all_.wishes; }
  [[nodiscard]] WorkerId self() const override { return all_.self; }
  [[nodiscard]] Runtime& runtime() override { return all_.runtime; }
  /// For the worker.
  [[nodiscard]] Exchange& exchange() override;
  /// As in PeerExchange. Called by the worker.
  [[nodiscard]] ResultOrigin origin_of(const SyncId& id) const override {
    return links_.exchange->origin_of(id);
  }
  /// Whether a site other than the first may be lost.
  [[nodiscard]] bool elastic() const { return all_.elastic; }
  /// Whether rounds may be rolled back: takes_steps_back.
  [[nodiscard]] bool takes_back() const override { return all_.takes_back; }
  /// The hub's WorkerId, or that of site 0.
  [[nodiscard]] WorkerId coordinator() const { return all_.coordinator; }
  [[nodiscard]] bool has_hub() const { return all_.has_hub(); }
  /// After a failed round: whether the others continue without this site, or wait for site 0, which
  /// this site has lost. Blocks until the news are here, which follow the round's end, or for 2 s.
  [[nodiscard]] bool cut_off();
  /// The joiner's side after a gather that `joins`; otherwise null.
  [[nodiscard]] Joiner* newcomer() { return all_.newcomer.get(); }
  /// The state fetched by `gather`, once; null: nothing was fetched. THROWS: as Joiner::take_state.
  [[nodiscard]] std::unique_ptr<StateReader> take_state() override {
    return all_.newcomer ? all_.newcomer->take_state() : nullptr;
  }
  /// Blocks, and THROWS, as Joiner::may_replay. REQUIRES: a gather that `joins`.
  [[nodiscard]] bool may_replay(StepIndex t, Duration patience) override {
    return all_.newcomer->may_replay(t, patience, &all_.wishes);
  }
  void send(WorkerId to, const Note& note) { links_.send(to, note); }
  /// How long rounds took here, from the session's start.
  [[nodiscard]] RoundTimes rounds() const override { return links_.rounds.so_far(); }

  /// Callbacks for news from the links.
  struct Listener {
    std::function<void(WorkerId, const Note&)> on_note;
    std::function<void(WorkerId, const std::string&)> on_lost;
    std::function<void(const Epoch&)> on_epoch;
    std::function<void(const std::exception_ptr&)> on_failure;
    std::function<void()> on_hub_back = {};
  };
  /// From now on, including earlier news. Called by the links' task, one call at a time; epochs
  /// that `admit` causes are reported by the caller of `admit`.
  void connect(Listener listener);
  /// After this call the callbacks of `connect` are not called any more.
  void disconnect();

  /// In an elastic run: joiners are given state from now on, and taken in by site 0, or with a hub
  /// by any donor. `wish`: asks the sites to agree on a step for a joiner. `window`: as
  /// StateDonor::Options.
  void take_newcomers(const std::string& run_id, std::function<void(const WishNote&)> wish,
                      std::int64_t window, std::int64_t total_steps);
  /// The sites have agreed: the joiner takes part in rounds sent after step t. RETURNS: true when
  /// it does; its epoch has then begun. Any task.
  bool admit(StepIndex t);
  /// The sites have agreed: `site` leaves after step t. RETURNS: as admit. Any task.
  bool release(WorkerId site, StepIndex t) { return links_.exchange->release(site, t.value()); }
  /// Called by the worker between two steps. `stands`: all sites pause after step t; called again
  /// while they do.
  void after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy,
                  bool stands = false) override;
  /// Called by the worker, which continues after step t: later steps do not count.
  void gone_back(StepIndex t) override;
  /// Whether a returning site is being taken in, as far as known here. Any task.
  [[nodiscard]] bool takes_in() const { return source_.takes_in(); }
  /// Whether training step t is late for a round begun by proxy. Called by the worker.
  [[nodiscard]] bool skips(StepIndex t) override {
    return links_.lateness.skips(t, links_.exchange->begun_ahead(),
                                 links_.exchange->missed_in_a_row());
  }
  [[nodiscard]] SiteLateness& lateness() { return links_.lateness; }
  /// This site's lateness so far; nothing when rounds have no deadline. Any task.
  [[nodiscard]] std::optional<LateStatus> late() {
    return all_.config.net.deadline ? std::optional(links_.lateness.so_far()) : std::nullopt;
  }
  /// Waiting spans are recorded there from now on; null: not recorded.
  void record_into(EventSink* events) { links_.events.record_into(events); }
  /// Serves the others until all have finished, for at most net.patience.
  void leave();

 private:
  /// Null: this site cannot be a donor.
  [[nodiscard]] StateDonor* host();
  void open_exchange();
  // From the links' task:
  void take(WorkerId from, std::span<const std::byte> bytes);
  void back(WorkerId site);
  void lose(WorkerId site, const std::string& why);
  void enter(const Epoch& epoch);
  void fail(const std::exception_ptr& failure);
  /// The hub's next process knows this run.
  void serve();

  SessionState all_;
  // Under all_.calls:
  std::optional<Listener> listener_;
  std::vector<std::pair<WorkerId, Note>> early_;
  std::vector<Epoch> early_epochs_;
  StateSource source_;  // has its own lock
  std::unique_ptr<StateDonor> host_;
  SessionLinks links_;
  SiteMeeting meeting_;
  LateArrival arrival_{all_, links_, meeting_};
  std::unique_ptr<StateServer> server_;  // while joiners are served; under all_.calls
};

}  // namespace isthmus::app
