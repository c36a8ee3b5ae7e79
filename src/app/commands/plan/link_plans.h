// SPDX-License-Identifier: Apache-2.0
// `plan sync`, `plan choose`, and `plan utilisation` over a link with latency: their arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/plan/command_plan.h"
#include "app/common/commands.h"

namespace isthmus::app {

struct PlanSyncArguments {
  std::string params;  // of the vector
  std::string codec = "fp32";
  std::string way = "ring";
  std::optional<int> sites;
  std::string rate, rtt;        // of every link; or
  std::filesystem::path links;  // a links file
  std::string link_model = "ideal";
  double link_share = 1;  // the share of each rate that the vector's frames get
  std::string processor;  // rate at which a site's processor exchanges fp32 values; empty: no limit
  std::string step_time;  // of a run that stops for each sync; empty: no run is planned
  std::int64_t H = 1;     // of that run
  std::optional<std::int64_t> steps;  // of that run; default: H
  std::int64_t skip = 0;              // the run's first steps, which do not count
};

struct PlanChooseArguments {
  std::filesystem::path links;
  std::vector<std::string> sites;  // of the file's; empty: all that it names
  std::string params, step_time;
  std::optional<int> layers;
  double computing = 0.9;  // the least share of its time that a site is to compute
  std::optional<std::int64_t> steps;
  std::string link_model = "goodput";
  std::string processor;        // as PlanSyncArguments'
  PlanMeshArguments mesh;       // of a site; ranks = 0: it is not asked about
  std::filesystem::path after;  // a run's folder
};

int command_plan_sync(const PlanSyncArguments& arguments, Session& session);
int command_plan_choose(const PlanChooseArguments& arguments, Session& session);
/// `links`: a links file, or empty; `latency`: "10ms", or empty.
int command_plan_utilisation(const PlanUtilisationArguments& arguments,
                             const std::filesystem::path& links, const std::string& latency,
                             Session& session);

}  // namespace isthmus::app
