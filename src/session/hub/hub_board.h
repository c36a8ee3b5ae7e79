// SPDX-License-Identifier: Apache-2.0
// The data of a hub's pages (hub --http): present sites, final rounds, the cost of its log. The
// hub's tasks write it, over all lives of one process; the server's task reads it
// (app/observe/hub_page.h).
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/runtime.h"

namespace isthmus::app {

struct HubStatus {
  std::string run_id;  // empty: no run has begun here
  std::vector<std::string> sites;
  std::vector<bool> here;  // by site: in the run, and connected to this process
  std::uint32_t epoch = 0;
  std::uint64_t rounds = 0;               // committed by this process
  std::optional<double> round_s;          // between the last two commits
  std::optional<double> committed_ago_s;  // the last one
  std::uint64_t log_writes = 0;
  double log_write_s = 0, last_log_write_s = 0;
  std::uint64_t enrolled = 0, enrolments_refused = 0;
  // False once a run has begun and none of its sites is present. Only the sites know when a round
  // is overdue.
  bool healthy = true;
  std::string word;  // the cause, in a line
};

class HubBoard {
 public:
  explicit HubBoard(std::vector<std::string> sites);

  // Any task.
  void run(const std::string& run_id);
  void see(const std::vector<bool>& here);
  void epoch(std::uint32_t number);
  void wrote(std::uint64_t commits, Duration took, TimePoint now);
  void enrolled(bool welcome);
  [[nodiscard]] HubStatus snapshot(TimePoint now) const;

 private:
  mutable std::mutex mutex_;
  // Under mutex_:
  HubStatus status_;
  std::optional<TimePoint> committed_;
};

}  // namespace isthmus::app
