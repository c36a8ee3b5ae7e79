// SPDX-License-Identifier: Apache-2.0
// `plan mesh` and `plan pipeline`: their arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

struct PlanPipelineArguments {
  int stages = 4;  // ranks of the pipeline
  int micro_batches = 8;
  std::optional<int> virtual_stages;
  std::string schedule;  // empty: 1f1b, with virtual stages interleaved-1f1b
  double forward = 1, backward_input = 1, backward_weight = 1, message = 0;
  bool on_receive = false;  // transfers begin when their receives are reached
};

struct PlanMeshArguments {
  std::filesystem::path config;        // a run with the model and batch, or empty
  std::vector<std::string> overrides;  // --set, for `config`
  std::string model;                   // "llama-8b", "llama:layers=32,d_model=4096,..."
  std::optional<std::int64_t> context;
  std::string batch;  // "4M tok": of the site in a step
  std::int64_t ranks = 0;
  std::int64_t nodes = 1;
  std::string memory;  // "80GB", of a rank
  std::string compute = "400TFLOP/s";
  std::string attention;    // rate for attention's operations; empty: compute
  std::string memory_rate;  // of a rank's memory; empty: memory takes no time
  std::string node_rate = "400GB/s", network_rate = "50GB/s";
  std::string node_latency = "5us", network_latency = "15us";
  std::string precision;  // empty: bf16, or the file's
  std::string optimizer;
  std::string schedule;
  std::optional<int> tp, pp, dp, zero, virtual_stages;
  std::optional<std::int64_t> micro_batches;
  std::string recompute;  // none, selective or full; empty: as little as memory allows
  std::optional<bool> sequence_parallel;
  std::int64_t top = 8;  // rows of the table
};

int command_plan_pipeline(const PlanPipelineArguments& arguments, Session& session);
int command_plan_mesh(const PlanMeshArguments& arguments, Session& session);

}  // namespace isthmus::app
