// SPDX-License-Identifier: Apache-2.0
// The cost of a mesh of tp x pp x dp ranks inside a site, computed from shapes: a rank's bytes of
// memory, its floating-point operations, and the bytes that it sends in each dimension and step.
// Runs nothing.
//
// Tensor parallelism is Megatron-LM's (arXiv:1909.08053 §3), with the sequence split between the
// pairs on demand (Korthikanti et al. arXiv:2205.05198); ZeRO is arXiv:1910.02054 over the
// data-parallel ranks; pipelines are inner/mesh/pipeline_schedule.h. Pure functions; any thread.
//
// The value types are those of this program: weights, gradients, moments and the residual stream in
// fp32, other activations in bf16 under `bf16`. So with AdamW and P values a rank has 16 P bytes;
// ZeRO 1: 8 P + 8 P / N, 2: 4 P + 12 P / N, 3: 16 P / N. (With the paper's 16-bit weights and
// gradients and fp32 masters, the same 16 P become 4 P + 12 P / N and 2 P + 14 P / N.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inner/mesh/pipeline_schedule.h"
#include "inner/model/model_layout.h"
#include "isthmus/config.h"
#include "outer/place/lane_memory.h"

namespace isthmus::plan {

struct MeshChoice {
  int tp = 1, pp = 1, dp = 1;
  PipelineKind schedule = PipelineKind::k1F1B;
  int virtual_stages = 1;
  std::int64_t micro_batches = 1;  // of a data-parallel rank in a step
  int zero = 0;                    // 0 .. 3
  bool sequence_parallel = false;
  Recompute recompute = Recompute::kNone;
  bool bf16 = false;
  std::string codec_state = "fp32";  // of updated values, with zero 1 and 2
  [[nodiscard]] int ranks() const { return tp * pp * dp; }
};

/// The demands of a run's outer method on a site's mesh, besides the traffic between sites.
struct OuterDemand {
  std::string method;             // as in outer.method; empty: unknown
  bool adam_moments = false;      // uses the inner optimizer's moments, which are then not sharded
  bool whole_gradients = false;   // needs whole gradients of every step, at the canonical weights
  std::int64_t state_values = 0;  // the method's values per parameter, on the site's first rank
  /// Outer state sharded over all ranks (outer.placement = "ranks"), in the place of
  /// `state_values`; none: not sharded.
  std::optional<outer::LaneDemand> lanes = {};
};

struct MeshWorkload {
  ModelShape shape;
  InnerConfig inner;
  std::int64_t context = 0;
  std::int64_t sequences = 0;  // of the site in one step
  OuterDemand outer = {};
};

/// The faults of a choice, a line each, with key, value, rule and the nearest valid value; empty:
/// none. Does not check memory.
[[nodiscard]] std::vector<std::string> mesh_problems(const MeshWorkload& workload,
                                                     const MeshChoice& choice);

/// The highest ZeRO level for data-parallel ranks of such a mesh: Muon updates whole matrices, some
/// outer methods use the moments, some schedules add to whole gradients. (Without data-parallel
/// ranks nothing is sharded: any level.)
[[nodiscard]] int most_zero(const MeshWorkload& workload, const MeshChoice& choice);

struct RankMemory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t moments = 0;
  std::int64_t update = 0;       // the optimizer's scratch
  std::int64_t activations = 0;  // arenas of all micro-batches in flight, a pass's scratch, and
                                 // rows of a tied embedding's gradient that a step can touch
  std::int64_t logits = 0;
  std::int64_t buffers = 0;  // gathered data: a layer (ZeRO 3), its gradient (2, 3), a sequence
  std::int64_t outer = 0;    // the outer method's, on the site's first rank or on each
  [[nodiscard]] std::int64_t total() const {
    return parameters + gradients + moments + update + activations + logits + buffers + outer;
  }
};

/// The communication of one rank with others in a step.
struct Volume {
  std::int64_t operations = 0;     // collectives, or messages sent
  std::int64_t payload_bytes = 0;  // of the arrays concerned: a reduction's whole input, a gather's
                                   // whole output, a message
  double sent_bytes = 0;           // by this rank: ring algorithms, (n - 1) / n of a payload, twice
                                   // for an all-reduce
  std::int64_t hops = 0;           // sequential one-way delays
  Volume& operator+=(const Volume& other);
};

struct RankVolumes {
  Volume tensor;    // within the layers of a micro-batch
  Volume pipeline;  // activations and their gradients, sent
  Volume data;      // gradients and parameters over the data-parallel ranks
  /// Messages of a tied table: rows of its gradient from the first stage to the last one, and with
  /// ZeRO the weights back.
  Volume embeddings;
  /// Between ranks that are processes, without ZeRO: weights from the site's first rank to the
  /// first data-parallel rank of each share, and sums of gradients back to it.
  Volume site;
};

/// Of one virtual stage and one micro-batch.
struct StageWork {
  double forward_flops = 0;    // the backward pass has twice as many,
  double attention_flops = 0;  // included: without weights, so the backward pass has twice as many,
                               // for inputs only; all others have equal parts for inputs and
                               // weights
  double head_flops = 0;       // included too: its gradients are computed with the forward pass
  double again_flops = 0;      // of a full recomputation,
  double again_attention_flops = 0;  // attention's part of these
  double forward_bytes = 0;          // memory traffic, see mesh_passes.h,
  double backward_bytes = 0;         // with recomputation
  Volume forward;                    // tensor-parallel operations in the forward pass,
  Volume backward;                   // in the backward pass, with recomputation,
  Volume weight;                     // and in its second part, if it is split
};

/// The communication of a rank with its data-parallel ranks in a step.
struct DataVolumes {
  Volume reduce;             // gradients, each time: an operation a bucket
  Volume last;               // included: gradients that are final only when a pass ends and waits
  double busiest_bytes = 0;  // of `reduce`, on the busiest link end, one bucket after another: with
  double last_busiest = 0;   // slices a bucket goes to one or two ranks
  Volume gather;             // parameters, of a pass that has none of them yet
  std::int64_t reduces = 1;  // times in a step
  Volume gathered;           // parameters in a step, without those that are still in buffers
};

struct RankCost {
  int pipeline_rank = 0;
  std::int64_t elements = 0;  // parameters of its share of its stages
  RankMemory memory;
  double flops = 0;                // of a step, with recomputation
  double update_bytes = 0;         // memory traffic of its part of the optimizer's update
  std::vector<StageWork> stages;   // of each chunk
  RankVolumes volumes;             // of a step
  DataVolumes data;                // volumes.data by its parts
  std::int64_t message_bytes = 0;  // of one message to a neighbouring stage
};

/// The cost of the rank with the most: the first of its tensor-parallel and data-parallel groups.
/// REQUIRES: mesh_problems is empty; pipeline_rank < pp. DETERMINISM: integers; the doubles are
/// sums in order.
///
/// Equal to `training_memory` for one rank, except for the outer state. Like that it omits batches,
/// packing buffers, and the few bytes of the gradient's norm. ZeRO 2 and 3 reduce gradients after
/// each micro-batch, since they do not keep them whole; ZeRO 3 gathers parameters for each forward
/// and each backward pass; buffers and traffic are those of a rank that is a process. The traffic
/// omits, with ZeRO, transfers of the site's first rank alone. Buckets are those without a codec
/// for gradients.
[[nodiscard]] RankCost rank_cost(const MeshWorkload& workload, const MeshChoice& choice,
                                 int pipeline_rank);
/// The costs of all pipeline ranks. `layout` is that of workload.shape.
[[nodiscard]] std::vector<RankCost> rank_costs(const ModelLayout& layout,
                                               const MeshWorkload& workload,
                                               const MeshChoice& choice);

/// "tp 2 x pp 4 x dp 8".
[[nodiscard]] std::string mesh_text(const MeshChoice& choice);

}  // namespace isthmus::plan
