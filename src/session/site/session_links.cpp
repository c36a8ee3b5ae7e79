// SPDX-License-Identifier: Apache-2.0
#include "session/site/session_links.h"

#include <algorithm>
#include <chrono>

#include "core/base/log.h"
#include "record/status_board.h"
#include "session/run/owner_shares.h"
#include "session/run/run_settings.h"
#include "session/site/site_links.h"
#include "session/site/site_recording.h"
#include "session/site/site_routes.h"
#include "session/site/watched_transport.h"
#include "transport/links/mpi_transport.h"
#include "transport/links/relay/link_allowance.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus::app {
namespace {

MemberOptions session_links(const Config& config, const SiteArguments& arguments, WorkerId self,
                            StatusBoard* status, bool elastic, FrameRecorder* recorder) {
  MemberOptions options = link_options(config, arguments, self, status);
  record_connections(options, recorder);
  if (has_hub(config, arguments)) add_hub(config, options);
  if (elastic) let_come_back(options);
  spare_detours(options);
  return options;
}

}  // namespace

SessionLinks::SessionLinks(SessionState& all, const SiteArguments& arguments, StatusBoard* status,
                           SiteRecording* record)
    : all_(all),
      begin(all.now()),
      recorder(record == nullptr ? nullptr : &record->open(all.self, all.names(), all.has_hub())),
      options(arguments.mpi
                  ? MemberOptions()
                  : session_links(all.config, arguments, all.self, status, all.elastic, recorder)),
      transport(arguments.mpi ? make_mpi_transport(all.runtime, all.config.net.dead_after)
                              : make_zmq_transport(all.runtime, options)),
      recording(recorder == nullptr ? nullptr
                                    : std::make_unique<RecordingTransport>(*transport, *recorder)),
      watched(std::make_unique<WatchedTransport>(
          recording ? static_cast<Transport&>(*recording) : *transport, status)),
      lateness(carries_lost(all.config), all.facts.late) {
  if (status != nullptr && all.config.net.deadline) {
    lateness.watch([status](const LateStatus& late) { status->late(late); });
  }
  if (!arguments.mpi) {
    routes =
        std::make_unique<SiteRoutes>(all.runtime, all.config.sites, options, transport->endpoint(),
                                     told_keys_of(*transport), HubRelay{all.config.hub.relay});
  }
}

SessionLinks::~SessionLinks() = default;

void SessionLinks::open_exchange(const SessionHandlers& handlers) {
  exchange = std::make_unique<PeerExchange>(
      *watched, all_.runtime,
      PeerExchangeOptions{
          .retry_interval = kNothingIsLost,
          .shares = routes ? first_shares(all_.config) : owner_shares(all_.config),
          .groups = site_groups(all_.config),
          .chunk_bytes = chunk_bytes(all_.config),
          .run_key = run_key(all_.config.run.seed, Stream::kRounding),
          .events = &events,
          .elastic = all_.elastic,
          .min_members = all_.config.min_sites(),
          .takes_back = all_.takes_back,
          .straggler = all_.config.outer.patience - all_.config.outer.patience / 8,
          .asks_after = std::chrono::minutes(1),
          .hub = all_.has_hub(),
          .merges = goes_by_arrival(all_.config),
          .keeps_encoded = retains_results(all_.config) ||
                           (all_.elastic && (all_.has_hub() || all_.self == WorkerId(0))),
          .gathers = all_.first_starts(),
          .on_note = handlers.on_note,
          .on_lost = handlers.on_lost,
          .on_back = handlers.on_back,
          .on_epoch = handlers.on_epoch,
          .on_failure = handlers.on_failure,
          .deadline = round_deadline(all_.config),
          .may_proxy = [this](StepIndex sent) { return lateness.may_stand_in(sent); },
          .on_proxy_round = [this](const ProxyRound& round) { lateness.stood_in(round); },
          .on_round = [this](WorkerId, const SyncId& id,
                             Duration took) { rounds.took(id, took); }});
}

void SessionLinks::forward(Exchange& results) {
  forwarding = std::make_unique<ForwardingExchange>(
      results, [this](const SyncId& id) { return exchange->origin_of(id).encoded; });
}

}  // namespace isthmus::app
