// SPDX-License-Identifier: Apache-2.0
#include "app/observe/hub_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "app/observe/metric_families.h"
#include "record/build_info.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

std::string metrics_of(const HubStatus& status) {
  MetricFamilies out;
  out.gauge("hub_info", "The hub that is told of; always 1.");
  out.value(1, {{"run_id", status.run_id}, {"version", program_version()}});
  out.gauge("hub_healthy", "1 while /healthz answers 200, else 0.", status.healthy ? 1 : 0);
  out.gauge("hub_sites", "Sites of the run.", status.sites.size());
  out.gauge("hub_members", "Sites that are in the run now.", std::ranges::count(status.here, true));
  out.gauge("hub_site_connected", "1 while the site is in the run, else 0.");
  for (std::size_t k = 0; k < status.sites.size(); ++k) {
    out.value(status.here[k] ? 1 : 0, {{"site", status.sites[k]}});
  }
  out.gauge("hub_epoch", "Number of the membership.", status.epoch);
  out.counter("hub_rounds_total", "Rounds that this process has committed.", status.rounds);
  out.gauge("hub_round_seconds", "Time between the last two commits.", status.round_s);
  out.gauge("hub_last_commit_timestamp_seconds", "When it was, in Unix time.");
  if (status.committed_ago_s) out.value(unix_now() - *status.committed_ago_s);
  out.counter("hub_log_writes_total", "Writes of decisions to the log, each on the disk.",
              status.log_writes);
  out.counter("hub_log_write_seconds_total", "Time that they took, fsync included.",
              status.log_write_s);
  out.gauge("hub_log_last_write_seconds", "Time that the last one took.");
  if (status.log_writes > 0) out.value(status.last_log_write_s);
  out.counter("hub_enrolments_total", "Sites that an invitation has let in.", status.enrolled);
  out.counter("hub_enrolments_refused_total", "Refused requests that showed an invitation.",
              status.enrolments_refused);
  return out.text();
}

std::string text_of(const HubStatus& status) {
  std::string text =
      fmt::format("isthmus hub: {}\nrun {}, membership {}, {} rounds committed\n", status.word,
                  status.run_id.empty() ? "none yet" : status.run_id, status.epoch, status.rounds);
  for (std::size_t k = 0; k < status.sites.size(); ++k) {
    text += fmt::format("  {}: {}\n", status.sites[k], status.here[k] ? "here" : "not here");
  }
  return text + "more: /metrics, /healthz; how training goes, the sites' own pages tell\n";
}

}  // namespace

HttpReply hub_page(std::string_view path, const HubStatus& status) {
  if (path == "/") return {.body = text_of(status)};
  if (path == "/metrics") return metrics_reply(metrics_of(status));
  if (path == "/healthz") return health_reply(status.healthy, status.word);
  return absent_reply("/, /metrics and /healthz");
}

}  // namespace isthmus::app
