// SPDX-License-Identifier: Apache-2.0
// The input of `plan mesh`, read from its flags and a configuration.
#pragma once

#include <string>

#include "app/commands/plan/command_plan.h"
#include "plan/mesh_search.h"

namespace isthmus::app {

struct PlanMeshRequest {
  std::string name;  // of the model
  plan::MeshWorkload workload;
  plan::MeshMachine machine;
  plan::MeshSearch search;
  std::int64_t nodes = 1;
};

/// THROWS: UsageError naming the flag, its value and the allowed ones; ConfigError of the file.
[[nodiscard]] PlanMeshRequest plan_mesh_request(const PlanMeshArguments& arguments);

}  // namespace isthmus::app
