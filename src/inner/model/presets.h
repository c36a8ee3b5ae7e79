// SPDX-License-Identifier: Apache-2.0
// The workloads that `bench compute` and its comparison with PyTorch run: a model, a context and a
// batch by name. Names and sizes are those of [model] preset where both have one.
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

/// All of them, smallest first.
[[nodiscard]] std::vector<Workload> workloads();
/// THROWS: ConfigError naming `name` and the workloads there are.
[[nodiscard]] Workload find_workload(std::string_view name);

}  // namespace isthmus
