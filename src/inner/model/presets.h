// SPDX-License-Identifier: Apache-2.0
// The workloads of `bench compute` and of its comparison with PyTorch: a model, a context and a
// batch by name. Names and sizes are those of [model] preset if both have one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/config.h"

namespace isthmus {

struct Workload {
  std::string name;
  ModelConfig model;
  std::int64_t context = 0;
  std::int64_t sequences = 0;
};

/// All workloads, smallest first.
[[nodiscard]] std::vector<Workload> workloads();
/// THROWS: ConfigError naming `name` and the available workloads.
[[nodiscard]] Workload find_workload(std::string_view name);

}  // namespace isthmus
