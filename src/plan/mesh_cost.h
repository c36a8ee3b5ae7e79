// SPDX-License-Identifier: Apache-2.0
// What a mesh of tp x pp x dp ranks costs inside a site, as arithmetic on shapes: bytes of memory
// of a rank, floating-point operations, and what it sends in each dimension and step. Nothing runs.
//
// Tensor parallelism is Megatron-LM's (arXiv:1909.08053 §3), with the sequence split between the
// pairs on demand (Korthikanti et al. arXiv:2205.05198); ZeRO is arXiv:1910.02054 over the
// data-parallel ranks; pipelines are inner/mesh/pipeline_schedule.h. Pure functions; any thread.
//
// Values are held as this program holds them: weights, gradients and moments as fp32, the residual
// stream as fp32 too, other activations as bf16 under `bf16`. So with AdamW and P values a rank has
// 16 P bytes; ZeRO 1: 8 P + 8 P / N, 2: 4 P + 12 P / N, 3: 16 P / N. (The paper's 16-bit weights
// and gradients beside fp32 masters make 4 P + 12 P / N and 2 P + 14 P / N of the same 16 P.)
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
  std::string codec_state = "fp32";  // of what an update changes, with zero 1 and 2
  [[nodiscard]] int ranks() const { return tp * pp * dp; }
};

/// What a run's outer method takes of a site's mesh, beside what travels between sites.
struct OuterDemand {
  std::string method;             // as in outer.method; empty: none is known
  bool adam_moments = false;      // reads and writes the inner optimizer's: they are not shared out
  bool whole_gradients = false;   // of every step, where the canonical weights are
  std::int64_t state_values = 0;  // of its own a parameter, in the same place, or
  /// Of these, shared out by all ranks (outer.placement = "ranks").
  std::optional<outer::LaneDemand> lanes = {};
};

struct MeshWorkload {
  ModelShape shape;
  InnerConfig inner;
  std::int64_t context = 0;
  std::int64_t sequences = 0;  // of the site in one step
  OuterDemand outer = {};
};

/// What is wrong with a choice, one line each, with key, value, rule and the nearest value that
/// works; empty: nothing. Memory is not looked at.
[[nodiscard]] std::vector<std::string> mesh_problems(const MeshWorkload& workload,
                                                     const MeshChoice& choice);

/// The most that data-parallel ranks of such a mesh can share out: Muon updates whole matrices,
/// some outer methods use the moments, some schedules add to whole gradients. (Without such ranks
/// nothing is shared: any.)
[[nodiscard]] int most_zero(const MeshWorkload& workload, const MeshChoice& choice);

struct RankMemory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t moments = 0;
  std::int64_t update = 0;       // the optimizer's scratch
  std::int64_t activations = 0;  // arenas of all micro-batches in flight, a pass's scratch, and
                                 // of a tied embedding's gradient the rows that a step can touch
  std::int64_t logits = 0;
  std::int64_t buffers = 0;  // what is gathered: a layer (ZeRO 3), its gradient (2, 3), a sequence
  std::int64_t outer = 0;    // what the outer method demands, of the site's first rank or of each
  [[nodiscard]] std::int64_t total() const {
    return parameters + gradients + moments + update + activations + logits + buffers + outer;
  }
};

/// What one rank does with others in a step.
struct Volume {
  std::int64_t operations = 0;     // collectives, or messages sent
  std::int64_t payload_bytes = 0;  // of the arrays these are about: a reduction's whole input, a
                                   // gather's whole output, a message
  double sent_bytes = 0;           // by this rank: ring algorithms, (n - 1) / n of a payload, twice
                                   // for an all-reduce
  std::int64_t hops = 0;           // one-way delays, one after another
  Volume& operator+=(const Volume& other);
};

struct RankVolumes {
  Volume tensor;    // within the layers of a micro-batch
  Volume pipeline;  // activations and their gradients, sent
  Volume data;      // gradients and parameters over the data-parallel ranks
  /// Messages of a tied table: rows of its gradient that the first stage sends to the last one,
  /// and with ZeRO the weights that come back.
  Volume embeddings;
  /// Between ranks that are processes, without ZeRO: weights that the site's first one sends to the
  /// first data-parallel rank of each share, gradients' sums that the others send to it.
  Volume site;
};

/// Of one virtual stage and one micro-batch.
struct StageWork {
  double forward_flops = 0;    // the backward pass has twice as many,
  double attention_flops = 0;  // of these: no weights, so twice as many for inputs alone; the rest
                               // has the same for inputs and for weights
  double head_flops = 0;       // of these too: its gradients are taken with the forward pass
  double again_flops = 0;      // of a full recomputation,
  double again_attention_flops = 0;  // attention's of these
  double forward_bytes = 0;          // gone through beside products and attention (mesh_passes.h),
  double backward_bytes = 0;         // recomputation included
  Volume forward;                    // tensor-parallel operations in the forward pass,
  Volume backward;                   // in the backward pass, recomputation included,
  Volume weight;                     // and in its second part, where it is split
};

/// What a rank does with the data-parallel ranks in a step.
struct DataVolumes {
  Volume reduce;             // gradients, each time: an operation a bucket
  Volume last;               // of these, what is final only as a pass ends that waits for it
  double busiest_bytes = 0;  // of `reduce`, through the busiest end, one bucket after another: of
  double last_busiest = 0;   // slices a bucket goes to one rank or two
  Volume gather;             // parameters, of a pass that finds none of them
  std::int64_t reduces = 1;  // times in a step
  Volume gathered;           // parameters, in a step: less what lies in buffers still
};

struct RankCost {
  int pipeline_rank = 0;
  std::int64_t elements = 0;  // parameters it works with: its share of its stages
  RankMemory memory;
  double flops = 0;                // of a step, recomputation included
  double update_bytes = 0;         // that its part of the optimizer's update goes through
  std::vector<StageWork> stages;   // of each chunk
  RankVolumes volumes;             // of a step
  DataVolumes data;                // volumes.data, by what it is
  std::int64_t message_bytes = 0;  // of one message to a neighbouring stage
};

/// Of the rank that has most: the first of its tensor-parallel and data-parallel groups. REQUIRES:
/// mesh_problems is empty; pipeline_rank < pp. DETERMINISM: integers; the doubles are sums in
/// order.
///
/// Equal to `training_memory` for one rank, but for the outer state. Not counted, as there:
/// batches, packing buffers, the few bytes of the gradient's norm. ZeRO 2 and 3 reduce gradients
/// after each micro-batch, since they do not hold them whole; ZeRO 3 gathers parameters for each
/// forward and each backward pass; buffers and traffic are those of a rank that is a process. Left
/// out of the traffic: with ZeRO what goes to and from the site's first rank alone. Buckets are
/// those without a codec of gradients.
[[nodiscard]] RankCost rank_cost(const MeshWorkload& workload, const MeshChoice& choice,
                                 int pipeline_rank);
/// Of all pipeline ranks. `layout` is that of workload.shape.
[[nodiscard]] std::vector<RankCost> rank_costs(const ModelLayout& layout,
                                               const MeshWorkload& workload,
                                               const MeshChoice& choice);

/// "tp 2 x pp 4 x dp 8".
[[nodiscard]] std::string mesh_text(const MeshChoice& choice);

}  // namespace isthmus::plan
