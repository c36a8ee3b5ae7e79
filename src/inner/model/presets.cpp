// SPDX-License-Identifier: Apache-2.0
#include "inner/model/presets.h"

#include <fmt/format.h>

#include <array>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

struct Row {
  std::string_view name, arch;
  std::int64_t layers, d_model, heads, kv_heads, d_ff, vocab, context, sequences;
};
constexpr std::array<Row, 11> kRows = {{
    {"nano", "gpt2", 4, 64, 4, 4, 256, 256, 64, 32},
    {"tiny", "gpt2", 4, 128, 4, 4, 512, 256, 128, 16},
    {"small", "gpt2", 6, 256, 8, 8, 1024, 256, 256, 8},
    {"llama-small", "llama", 6, 256, 8, 4, 688, 256, 256, 8},
    {"small-10m", "gpt2", 6, 384, 6, 6, 1536, 256, 256, 8},
    {"llama-mid", "llama", 8, 512, 8, 4, 1376, 8192, 256, 8},
    {"mid", "gpt2", 8, 512, 8, 8, 2048, 8192, 256, 8},
    {"gpt2-124m", "gpt2", 12, 768, 12, 12, 3072, 50257, 256, 4},
    {"gpt2-124m-1k", "gpt2", 12, 768, 12, 12, 3072, 50257, 1024, 1},
    {"llama-134m", "llama", 30, 576, 9, 3, 1536, 49152, 256, 4},
    {"llama-1.3b", "llama", 24, 2048, 16, 16, 5504, 32000, 1024, 8},
}};

Workload workload_of(const Row& row) {
  ModelConfig model = model_of_row(row);
  model.context = row.context;
  return {std::string(row.name), model, row.context, row.sequences};
}

}  // namespace

std::vector<Workload> workloads() {
  std::vector<Workload> all;
  all.reserve(kRows.size());
  for (const Row& row : kRows) all.push_back(workload_of(row));
  return all;
}

Workload find_workload(std::string_view name) {
  std::string names;
  for (const Row& row : kRows) {
    if (row.name == name) return workload_of(row);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  throw ConfigError(fmt::format("workload '{}': must be one of {}", name, names));
}

}  // namespace isthmus
