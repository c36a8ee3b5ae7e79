// SPDX-License-Identifier: Apache-2.0
#include "session/hub/hub_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace isthmus::app {
HubBoard::HubBoard(std::vector<std::string> sites) {
  status_.here.resize(sites.size());
  status_.sites = std::move(sites);
}

void HubBoard::run(const std::string& run_id) {
  const std::scoped_lock lock(mutex_);
  status_.run_id = run_id;
}

void HubBoard::see(const std::vector<bool>& here) {
  const std::scoped_lock lock(mutex_);
  status_.here = here;
}

void HubBoard::epoch(std::uint32_t number) {
  const std::scoped_lock lock(mutex_);
  status_.epoch = number;
}

void HubBoard::wrote(std::uint64_t commits, Duration took, TimePoint now) {
  const std::scoped_lock lock(mutex_);
  ++status_.log_writes;
  status_.log_write_s += in_seconds(took);
  status_.last_log_write_s = in_seconds(took);
  if (commits == 0) return;
  status_.rounds += commits;
  if (committed_) status_.round_s = in_seconds(now - *committed_) / static_cast<double>(commits);
  committed_ = now;
}

void HubBoard::enrolled(bool welcome) {
  const std::scoped_lock lock(mutex_);
  ++(welcome ? status_.enrolled : status_.enrolments_refused);
}

HubStatus HubBoard::snapshot(TimePoint now) const {
  const std::scoped_lock lock(mutex_);
  HubStatus status = status_;
  if (committed_) status.committed_ago_s = in_seconds(now - *committed_);
  const auto here = std::ranges::count(status.here, true);
  if (status.run_id.empty()) {
    status.word = "waiting for the sites";
  } else if (here == 0) {
    status.healthy = false;
    status.word = "no site of the run is here";
  } else {
    status.word = fmt::format("{} of {} sites are in the run", here, status.sites.size());
  }
  return status;
}

}  // namespace isthmus::app
