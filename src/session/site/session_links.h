// SPDX-License-Identifier: Apache-2.0
// The links of a site's session: its routes, transport and exchange, each built on the previous
// one. SiteSession owns them; its parts borrow them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "core/base/events.h"
#include "record/measured_rounds.h"
#include "session/site/session_state.h"
#include "session/site/site_lateness.h"
#include "transport/exchange/catch_up/joining_exchange.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/links/network_transport.h"
#include "transport/wire/recording_transport.h"

namespace isthmus::app {

class SiteRecording;
class SiteRoutes;
class StatusBoard;
class WatchedTransport;

/// Events of the exchange, which starts before an event sink exists.
class SessionEvents final : public EventSink {
 public:
  void record(const Event& event) override {
    if (EventSink* sink = sink_.load()) sink->record(event);
  }
  void record_into(EventSink* sink) { sink_ = sink; }

 private:
  std::atomic<EventSink*> sink_{nullptr};
};

/// Callbacks for events of the exchange; called by the links' task.
struct SessionHandlers {
  std::function<void(WorkerId, std::span<const std::byte>)> on_note;
  std::function<void(WorkerId, const std::string&)> on_lost;
  std::function<void(WorkerId)> on_back;
  std::function<void(const Epoch&)> on_epoch;
  std::function<void(const std::exception_ptr&)> on_failure;
};

struct SessionLinks {
  /// Listens. Borrows all; `status` and `recording` may be null. THROWS: as SiteSession.
  SessionLinks(SessionState& all, const SiteArguments& arguments, StatusBoard* status,
               SiteRecording* recording);
  ~SessionLinks();
  SessionLinks(const SessionLinks&) = delete;
  SessionLinks& operator=(const SessionLinks&) = delete;

  /// From here on rounds, notes and epochs are exchanged. `handlers` are called until this object
  /// ends.
  void open_exchange(const SessionHandlers& handlers);
  void send(WorkerId to, const Note& note) { exchange->note(to, write_note(note)); }
  /// Keeps the results of `results` for joiners from now on.
  void forward(Exchange& results);

  SessionState& all_;
  TimePoint begin;
  MeasuredRounds rounds;
  SessionEvents events;
  FrameRecorder* const recorder;       // null: nothing is recorded
  const MemberOptions options;         // unused under MPI
  std::unique_ptr<SiteRoutes> routes;  // null under MPI; ends after the transport
  std::unique_ptr<NetworkTransport> transport;
  std::unique_ptr<RecordingTransport> recording;  // null: nothing is recorded
  std::unique_ptr<WatchedTransport> watched;
  SiteLateness lateness;
  std::unique_ptr<PeerExchange> exchange;
  std::unique_ptr<ForwardingExchange> forwarding;  // only at possible donors
};

}  // namespace isthmus::app
