// SPDX-License-Identifier: Apache-2.0
#include "session/run_checks.h"

#include <fmt/format.h>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "session/run/owner_shares.h"
#include "session/run/run_settings.h"
#include "session/site/site_links.h"

namespace isthmus::app {
namespace {

void check_real_time(const Config& config, bool emulated) {
  const char* const how = emulated ? "--emulate takes real time" : "this run takes real time";
  if (!config.faults.empty()) {
    throw ConfigError(fmt::format(
        "[[fault]]: faults happen in virtual time, and {}: remove the {}, or use `simulate`", how,
        config.faults.size() == 1 ? "entry" : "entries"));
  }
  for (const LinkConfig& link : config.links) {
    if (link.trace.empty()) continue;
    throw ConfigError(fmt::format(
        "[[link]] {} - {}: trace = \"{}\" has rates in virtual time, and {}: give it a rate, or "
        "use `simulate`",
        link.a, link.b, link.trace.string(), how));
  }
}

}  // namespace

void check_run(const Config& config, const RunPlace& place) {
  for (const std::string& note : config.notes) log_warning("{}", note);
  (void)owner_shares(config);
  const bool mpi = place.site && place.site->mpi;
  if (config.net.deadline && mpi) {
    throw ConfigError(
        "net.deadline over MPI: there all sites take part in every round, as none may be lost; "
        "remove it");
  }
  if (place.simulated || place.emulated) check_links(config);
  if (!place.simulated) check_real_time(config, place.emulated);
}

}  // namespace isthmus::app
