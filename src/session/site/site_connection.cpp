// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_connection.h"

#include <fmt/format.h>

#include <utility>

#include "record/build_info.h"
#include "record/status_board.h"
#include "session/site/site_routes.h"

namespace isthmus::app {

std::unique_ptr<SiteStepCoordinator> make_site_step_coordinator(SiteSession& session,
                                                                const Config& config,
                                                                std::int64_t total_steps,
                                                                std::int64_t taken, RunLog& log,
                                                                StatusBoard* status) {
  SiteStepCoordinator::Options options{
      .wishes = &session.wishes(),
      .self = session.self(),
      .sites = {},
      .total_steps = total_steps,
      .resumed_after = taken,
      .send = [&session](WorkerId to, const Note& note) { session.send(to, note); },
      .elastic = session.elastic(),
      .min_sites = config.min_sites(),
      .gather = config.net.gather,
      .takes_in = [&session] { return session.takes_in(); },
      .on_wait =
          [status](const std::string& for_whom) {
            if (status != nullptr) status->stands_still(for_whom);
          },
      .window = join_window(config) + 1,
      .relays = needed_relays(config),
      .hidden = hidden_sites(config.sites),
      .coordinator = session.coordinator(),
      .patience = config.outer.patience,
      .joining = session.newcomer() != nullptr,
      .about = fmt::format("{} on {}", program_version(), machine_info().cpu),
      .on_join = [&session](StepIndex t) { return session.admit(t); },
      .on_leave = [&session](WorkerId site, StepIndex t) { return session.release(site, t); }};
  for (const SiteConfig& site : config.sites) {
    options.sites.push_back(site.name);
  }
  return std::make_unique<SiteStepCoordinator>(std::move(options), session.runtime(), log);
}

SiteConnection::SiteConnection(SiteSession* session, SiteStepCoordinator* board)
    : session_(session) {
  if (session_ != nullptr) {
    session_->connect(
        {.on_note = [board](WorkerId from, const Note& note) { board->receive(from, note); },
         .on_lost = [board](WorkerId site, const std::string& why) { board->lost(site, why); },
         .on_epoch = [board](const Epoch& epoch) { board->epoch(epoch); },
         .on_failure = [board](const std::exception_ptr& failure) { board->fail(failure); },
         .on_hub_back = [board] { board->hub_back(); }});
    session_->lateness().ask([board](StepIndex sent) { return board->may_stand_in(sent); });
  }
}

SiteConnection::~SiteConnection() {
  if (session_ != nullptr) {
    session_->lateness().ask({});
    session_->disconnect();
  }
}

}  // namespace isthmus::app
