// SPDX-License-Identifier: Apache-2.0
// Measures the training speed of the inner loop on this machine: whole steps on random tokens, the
// time of their parts, and the machine's speed at plain matrix products in the same run. Used by
// `isthmus bench compute`. Use an idle machine.
#pragma once

#include <cstdint>
#include <string>

#include "inner/loop/device_attention.h"
#include "inner/mesh/mesh.h"
#include "inner/mesh/pipeline_schedule.h"
#include "inner/model/presets.h"
#include "isthmus/config.h"
#include "isthmus/runtime.h"

namespace isthmus {

struct ModelTimingOptions {
  int threads = 1;
  double seconds = 6;          // seconds of timed steps; at least 3 and at most 400 steps
  std::int64_t sequences = 0;  // 0: the workload's
  std::int64_t micro_batches = 1;
  bool bf16 = false;
  DeviceAttention attention = DeviceAttention::kOwn;  // on a device
  Recompute recompute = Recompute::kNone;
  std::string optimizer = "adamw";
  MeshShape mesh = {};  // ranks are threads; together they use `threads` threads
  PipelineKind schedule = PipelineKind::k1F1B;
  int virtual_stages = 1;
  int zero = 0;
};

/// Milliseconds of a part of the step: the median over the timed steps.
struct ModelTiming {
  std::string workload;
  std::string isa;             // of the kernels
  ModelTimingOptions options;  // with the sequences of a step
  std::int64_t parameters = 0;
  std::int64_t context = 0;
  std::int64_t steps = 0;
  double best_ms = 0, median_ms = 0;  // of a whole step
  double forward_ms = 0;              // embedding, layers, final norm
  double head_ms = 0;                 // logits, loss and their gradients; 0 for a mesh
  double backward_ms = 0;
  double optimizer_ms = 0;  // norm, clip, update, clearing of gradients
  /// The step's matrix products and its attention, each repeated separately on data of the same
  /// shape; `rest_ms` is the remaining time of the best step. 0 for a mesh.
  double products_ms = 0, attention_ms = 0, rest_ms = 0;
  double tokens_per_s = 0, median_tokens_per_s = 0;
  double gflops = 0;            // of the best step, by training_flops_per_token
  double optimizer_gflops = 0;  // of the optimizer's matrix products (Muon), else 0
  double product_gflops =
      0;                    // of a product whose operands stay in cache, on all threads: the bound
  double of_bound = 0;      // gflops / product_gflops
  double peak_rss_mib = 0;  // peak of this process; 0 if the system does not tell
  double base_rss_mib = 0;  // the same before the model was made
  double arena_mib = 0;
  double loss = 0;  // of the last step
};

/// THROWS: ConfigError when the options do not fit the workload.
[[nodiscard]] ModelTiming time_model(const Workload& workload, const ModelTimingOptions& options,
                                     const Clock& clock);

/// One JSON object without a line end.
[[nodiscard]] std::string to_json(const ModelTiming& timing);

}  // namespace isthmus
