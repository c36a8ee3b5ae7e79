// SPDX-License-Identifier: Apache-2.0
#include "session/hub/hub_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "isthmus/errors.h"
#include "session/run/owner_shares.h"
#include "session/site/site_links.h"
#include "transport/exchange/hub_record.h"

namespace isthmus::app {
namespace {

HelloNote own_note(const Config& config) {
  HelloNote own{.run_id = {}, .resumes = false, .held = {}, .common = common_values(config)};
  append_shares(config, own.common);
  // A file without the key leaves the decision to the sites, whose checkpoints tell how the run was
  // begun.
  const auto origin = config.origins.find("outer.final_sync");
  if (origin != config.origins.end() && origin->second.text == "default") {
    std::erase_if(own.common, [](const auto& each) { return each.first == "outer.final_sync"; });
  }
  return own;
}

}  // namespace

HubState::HubState(HubOptions given, HubLog& the_log)
    : options(std::move(given)),
      log(the_log),
      own(own_note(options.config)),
      session(log.contents().session),
      sites(options.config.sites.size()),
      live(options.config.sites.size(), true) {
  const Config& config = options.config;
  if (session && session->sites != config.workers()) {
    throw ConfigError(
        fmt::format("the hub's log is of a run of {} sites, and {} has {}: give "
                    "another --out",
                    session->sites, config.file.string(), config.workers()));
  }
  if (session) check_log_shares(session->common);
  for (const HubRecord& record : log.contents().history) {
    if (record.kind != HubRecord::Kind::kEpoch) continue;
    const auto news = EpochNews::read(record.body, config.workers());
    live = news->epoch.live;
  }
}

bool HubState::anybody_stands() const {
  return std::ranges::any_of(sites, [](const Site& each) { return each.standing; });
}

std::vector<int> HubState::live_sites(WorkerId except) const {
  std::vector<int> others;
  for (int m = 0; m < options.config.workers(); ++m) {
    if (live[static_cast<std::size_t>(m)] && WorkerId(m) != except) others.push_back(m);
  }
  return others;
}

}  // namespace isthmus::app
