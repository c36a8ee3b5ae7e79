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

/// A model with the sizes of a row of a table: arch, layers, d_model, heads, kv_heads, d_ff, vocab.
template <typename Row>
[[nodiscard]] ModelConfig model_of_row(const Row& row) {
  ModelConfig model;
  model.arch = row.arch;
  model.layers = row.layers;
  model.d_model = row.d_model;
  model.heads = row.heads;
  model.kv_heads = row.kv_heads;
  model.d_ff = row.d_ff;
  model.vocab = row.vocab;
  return model;
}

/// All workloads, smallest first.
[[nodiscard]] std::vector<Workload> workloads();
/// THROWS: ConfigError naming `name` and the available workloads.
[[nodiscard]] Workload find_workload(std::string_view name);

}  // namespace isthmus
