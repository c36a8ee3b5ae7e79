// SPDX-License-Identifier: Apache-2.0
// One site's part of a run whose sites are processes of their own: links to all others, what they
// must have alike, where they go on from. Sites may die and come back while the run goes on
// (`elastic`), but for the first, which says who is there; or any of them, where a hub does.
//
// The session hears what the exchange brings and gives it to its listener, to the host of
// newcomers, or to the newcomer that this site is. Its parts share one state: SiteMeeting (how the
// session begins) and LateArrival (a site that comes to a run that goes on).
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
#include "session/site/join_host.h"
#include "session/site/late_arrival.h"
#include "session/site/newcomer.h"
#include "session/site/session_links.h"
#include "session/site/session_state.h"
#include "session/site/site_meeting.h"
#include "session/site/site_notes.h"
#include "session/site/site_start.h"
#include "session/site/state_server.h"
#include "session/site/state_source.h"
#include "transport/wire/epoch.h"

namespace isthmus::app {

/// What tells data apart: files by place, size and SHA-256; of many, a digest of all.
void append_data(std::span<const DataFile> files,
                 std::vector<std::pair<std::string, std::string>>& common);

class SiteSession final : public WorkerSite {
 public:
  /// Listens. Borrows `wishes`, and `status` and `recording`, which may be null: frames are then
  /// written down nowhere. THROWS: ConfigError, SystemError for an address, key or recording that
  /// cannot be used.
  SiteSession(const Config& config, const SiteArguments& arguments, const SiteFacts& facts,
              Wishes& wishes, StatusBoard* status = nullptr, SiteRecording* recording = nullptr);
  /// Ends the links: in order after `leave`, otherwise the others see this site as lost.
  ~SiteSession();
  SiteSession(const SiteSession&) = delete;
  SiteSession& operator=(const SiteSession&) = delete;

  using Meanwhile = SiteMeeting::Meanwhile;
  /// Dials, and blocks until all sites are together and have said what they bring, for at most
  /// net.gather; or, where they have gone on without this one, until a worker's state is here.
  /// `say`: a line for people now and then. THROWS: PeerError naming who is missing, refused or
  /// gone; ConfigError as agree_on_start; RunError after a signal.
  [[nodiscard]] SiteStart gather(const std::function<void(const std::string&)>& say,
                                 Meanwhile meanwhile);

  [[nodiscard]] Wishes& wishes() { return all_.wishes; }
  [[nodiscard]] WorkerId self() const override { return all_.self; }
  [[nodiscard]] Runtime& runtime() override { return all_.runtime; }
  /// The worker's.
  [[nodiscard]] Exchange& exchange() override;
  /// As PeerExchange has it. From the worker.
  [[nodiscard]] ResultOrigin origin_of(const SyncId& id) const override {
    return links_.exchange->origin_of(id);
  }
  /// Whether a site other than the first may be lost.
  [[nodiscard]] bool elastic() const { return all_.elastic; }
  /// Whether rounds may be taken back: takes_steps_back.
  [[nodiscard]] bool takes_back() const override { return all_.takes_back; }
  /// The hub's rank where there is one, else that of site 0.
  [[nodiscard]] WorkerId coordinator() const { return all_.coordinator; }
  [[nodiscard]] bool has_hub() const { return all_.has_hub(); }
  /// After a round has failed: whether the others go on without this site, or wait for the first,
  /// which it has lost. Blocks until the news are here, a moment behind the round's end, or 2 s.
  [[nodiscard]] bool cut_off();
  /// After a gather that `joins`; else null.
  [[nodiscard]] Newcomer* newcomer() { return all_.newcomer.get(); }
  [[nodiscard]] std::unique_ptr<StateReader> take_state() override {
    return all_.newcomer ? all_.newcomer->take_state() : nullptr;
  }
  /// REQUIRES: a gather that `joins`.
  [[nodiscard]] bool may_replay(StepIndex t, Duration patience) override {
    return all_.newcomer->may_replay(t, patience, &all_.wishes);
  }
  void send(WorkerId to, const Note& note) { links_.send(to, note); }
  /// How long rounds took here, from the session's start.
  [[nodiscard]] RoundTimes rounds() const override { return links_.rounds.so_far(); }

  /// Who hears of what comes from the links.
  struct Listener {
    std::function<void(WorkerId, const Note&)> on_note;
    std::function<void(WorkerId, const std::string&)> on_lost;
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
  bool release(WorkerId site, StepIndex t) { return links_.exchange->release(site, t.value()); }
  /// From the worker, between two steps. `stands`: all sites stand after step t, for now; called
  /// again while they do.
  void after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy,
                  bool stands = false) override;
  /// From the worker, which goes on after step t: what it has taken since does not count.
  void gone_back(StepIndex t) override;
  /// Whether somebody who comes back is being taken in, as far as is known here. Any task.
  [[nodiscard]] bool takes_in() const { return source_.takes_in(); }
  /// Whether training step t is late for a round that has been begun without it. From the worker.
  [[nodiscard]] bool skips(StepIndex t) override {
    return links_.lateness.skips(t, links_.exchange->begun_ahead(),
                                 links_.exchange->missed_in_a_row());
  }
  [[nodiscard]] SiteLateness& lateness() { return links_.lateness; }
  /// How late this site has been so far; nothing where rounds have no deadline. Any task.
  [[nodiscard]] std::optional<LateStatus> late() {
    return all_.config.net.deadline ? std::optional(links_.lateness.so_far()) : std::nullopt;
  }
  /// Waiting spans go there from now on; null: nowhere.
  void record_into(EventSink* events) { links_.events.record_into(events); }
  /// Serves the others until all have finished, for at most net.patience.
  void leave();

 private:
  /// Null: this site is no donor.
  [[nodiscard]] JoinHost* host();
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
  StateSource source_;  // has a lock of its own
  std::unique_ptr<JoinHost> host_;
  SessionLinks links_;
  SiteMeeting meeting_;
  LateArrival arrival_{all_, links_, meeting_};
  std::unique_ptr<StateServer> server_;  // while newcomers are given state; under all_.calls
};

}  // namespace isthmus::app
