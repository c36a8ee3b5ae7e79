// SPDX-License-Identifier: Apache-2.0
#include "session/site/session_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "session/run/wishes.h"
#include "session/site/site_links.h"
#include "session/site/site_start.h"

namespace isthmus::app {

SessionState::SessionState(const Config& the_config, const SiteArguments& arguments,
                           const SiteFacts& given, Wishes& the_wishes)
    : config(the_config),
      self(site_of(config, arguments)),
      coordinator(coordinator_of(config, arguments)),
      facts(given),
      wishes(the_wishes),
      elastic(is_elastic(config, arguments)),
      takes_back(takes_steps_back(config, arguments)),
      queue(runtime.make_wait_queue()) {
  const std::size_t sites = config.sites.size();
  meeting.hellos.resize(sites);
  meeting.greeted.assign(sites + 1, false);
  meeting.away.assign(sites, false);
  meeting.returns.assign(sites, 0);
  arrival.seen_by.assign(sites, false);
  fate.live.assign(sites, true);
  fate.asked.assign(sites, false);
}

std::vector<std::string> SessionState::names() const {
  std::vector<std::string> names;
  for (const SiteConfig& site : config.sites) names.push_back(site.name);
  return names;
}

std::string SessionState::name(WorkerId site) const {
  const auto place = static_cast<std::size_t>(site.value());
  return place < config.sites.size() ? config.sites[place].name : "hub";
}

WorkerId SessionState::donor() const {
  WorkerId donor(0);
  queue->update([&] {
    if (has_hub() && arrival.running)
      donor = arrival.donor.value_or(WorkerId(arrival.running->donor));
  });
  return donor;
}

bool SessionState::is_absent(std::size_t site) const {
  return meeting.start && std::ranges::find(meeting.start->absent, static_cast<int>(site)) !=
                              meeting.start->absent.end();
}

void SessionState::hear_running(const RunningNote& note, bool joining) {
  if (joining && arrival.running && arrival.running->session != note.session)
    arrival.is_past = true;
  arrival.running = note;
}

void SessionState::hear_start(const StartNote& note, bool joining) {
  meeting.start = note;
  if (!has_hub() || !arrival.running || arrival.running->session == note.session) return;
  if (joining)
    arrival.is_past = true;
  else
    arrival.running.reset();
}

void SessionState::check_stop(const std::string& waiting_for) const {
  if (const StopWish wish = wishes.stop(); wish != StopWish::kNone) {
    throw Error(exit_code_of(wish), fmt::format("stopped before the first step: {}", waiting_for));
  }
}

[[noreturn]] void throw_refused(const JoinError& error) {
  switch (error.field) {
    case RefusedField::kProtocol:
    case RefusedField::kRun:
    case RefusedField::kConfiguration:
    case RefusedField::kLayout:
    case RefusedField::kMembers:
    case RefusedField::kPlace:
      throw ConfigError(error.what);
    case RefusedField::kIncarnation:
    case RefusedField::kGivenUp:
    case RefusedField::kMalformed:
    case RefusedField::kKey:
      break;
  }
  throw PeerError(error.what);
}

}  // namespace isthmus::app
