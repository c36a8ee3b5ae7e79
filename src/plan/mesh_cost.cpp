// SPDX-License-Identifier: Apache-2.0
#include "plan/mesh_cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "inner/model/embedding_rows.h"
#include "kernels/cross_entropy.h"
#include "kernels/muon.h"
#include "plan/mesh_passes.h"
#include "plan/mesh_share.h"
#include "plan/mesh_traffic.h"

namespace isthmus::plan {
namespace {

std::int64_t divided(std::int64_t value, std::int64_t parts) { return (value + parts - 1) / parts; }

/// Moments of a tensor's value under the inner optimizer.
std::int64_t moments_of(const InnerConfig& inner, const TensorInfo& tensor) {
  if (inner.optimizer == "sgd") return inner.momentum == 0 ? 0 : 1;
  return inner.optimizer == "muon" && tensor.hidden_matrix() ? 1 : 2;
}

/// A rank's state in values, before ZeRO divides it.
struct State {
  std::int64_t parameters = 0, moments = 0;
  std::int64_t buckets = 0;  // of the buffers in which buckets come and go
};

/// Values of a stage's buffers (inner/mesh/parameter_buckets.h).
std::int64_t bucket_values(const ModelShape& shape, const StageShare& stage) {
  std::int64_t in_layers = 0, before = 0, after = 0;
  for (const TensorShare& tensor : stage.tensors) {
    if (tensor.tensor->layer != kNoLayer)
      in_layers += tensor.elements;
    else
      (in_layers == 0 ? before : after) += tensor.elements;
  }
  const std::int64_t layers = std::max<std::int64_t>(stage.layers.size(), 1);
  const std::int64_t outside = shape.tied ? before + after : std::max(before, after);
  return std::min<std::int64_t>(layers, 2) * (in_layers / layers) + outside;
}

State state_of(const MeshWorkload& workload, const MeshShare& share) {
  State state;
  for (const StageShare& stage : share.stages) {
    for (const TensorShare& tensor : stage.tensors) {
      state.parameters += tensor.elements;
      state.moments += tensor.elements * moments_of(workload.inner, *tensor.tensor);
    }
    state.buckets += bucket_values(workload.shape, stage);
  }
  return state;
}

std::int64_t update_scratch(const MeshWorkload& workload, const MeshShare& share) {
  std::int64_t bytes = 0;
  if (workload.inner.optimizer != "muon") return bytes;
  for (const StageShare& stage : share.stages) {
    for (const TensorShare& share_of : stage.tensors) {
      const TensorInfo& tensor = *share_of.tensor;
      if (!tensor.hidden_matrix()) continue;
      bytes = std::max(bytes, kernels::muon_scratch_bytes(tensor.shape[0], tensor.shape[1]));
    }
  }
  return bytes;
}

/// Micro-batches of a chunk whose activations a rank holds at a time.
std::int64_t most_in_flight(const std::vector<PipelineOp>& operations, int chunk) {
  std::int64_t held = 0, most = 1;
  for (const PipelineOp& op : operations) {
    if (op.chunk != chunk) continue;
    if (op.kind == PipelineOpKind::kForward) most = std::max(most, ++held);
    if (op.kind == PipelineOpKind::kBackward || op.kind == PipelineOpKind::kBackwardWeight) --held;
  }
  return most;
}

/// Enough of the schedule to see what is in flight: later rounds hold no more than early ones, but
/// for gpipe, which holds all micro-batches.
PipelineSchedule first_rounds(const MeshChoice& choice) {
  constexpr std::int64_t kRounds = 4;
  const std::int64_t few = std::min(choice.micro_batches, kRounds * choice.pp);
  return make_pipeline_schedule(choice.schedule, choice.pp, static_cast<int>(few),
                                choice.virtual_stages);
}

std::int64_t in_flight(const MeshChoice& choice, const PipelineSchedule& rounds, int pipeline_rank,
                       int chunk) {
  if (choice.schedule == PipelineKind::kGpipe) return choice.micro_batches;
  return most_in_flight(rounds.operations[static_cast<std::size_t>(pipeline_rank)], chunk);
}

RankMemory memory_of(const MeshWorkload& workload, const MeshChoice& choice, const MeshShare& share,
                     const PipelineSchedule& rounds, int pipeline_rank) {
  const State state = state_of(workload, share);
  const auto shard = [&](std::int64_t values, int from) {
    return kFloatBytes * (choice.zero >= from ? divided(values, choice.dp) : values);
  };
  RankMemory memory;
  memory.moments = shard(state.moments, 1);
  memory.gradients = shard(state.parameters, 2);
  memory.parameters = shard(state.parameters, 3);
  if (choice.dp > 1) {
    // Gradients before their reduction; weights that are gathered.
    const std::int64_t bytes = kFloatBytes * state.buckets;
    memory.buffers = choice.zero < 2 ? 0 : choice.zero == 2 ? bytes : 2 * bytes;
  }
  memory.update = update_scratch(workload, share);
  const std::int64_t rows = micro_batch_rows(workload, choice);
  memory.activations = working_bytes(workload.shape, choice, rows);
  for (std::size_t chunk = 0; chunk < share.stages.size(); ++chunk) {
    memory.activations +=
        in_flight(choice, rounds, pipeline_rank, static_cast<int>(chunk)) *
        arena_bytes(workload.shape, choice, share.stages[chunk].layers.size(), rows);
    if (share.stages[chunk].first && workload.shape.tied) {
      memory.activations += EmbeddingRows<float>::bytes(embedding_rows_of(workload, choice));
    }
    if (share.stages[chunk].last) {
      const std::int64_t vocab = divided(workload.shape.vocab, choice.tp);
      memory.logits = kernels::cross_entropy_chunk(rows, vocab) * vocab * kFloatBytes;
    }
  }
  if (choice.sequence_parallel) {
    memory.buffers += rows * workload.shape.d_model * kFloatBytes;  // one input, gathered
  }
  return memory;
}

/// What a rank of a site, the first one or another, holds for the outer method at most: of the
/// whole model, unless all ranks share it out.
std::int64_t outer_bytes(const OuterDemand& outer, const MeshChoice& choice, std::int64_t values,
                         bool first) {
  // Without ZeRO the gradients' sums are there anyway.
  const bool gradients = first && outer.whole_gradients && choice.zero >= 1 && choice.dp > 1;
  const std::int64_t whole = gradients ? values * kFloatBytes : 0;
  if (outer.lanes && choice.ranks() > 1) {
    const int rank =
        first ? 0 : choice.ranks() - 1;  // of lanes that are not alike the last is largest
    return outer::lane_memory(*outer.lanes, choice.ranks(), rank).most() + whole;
  }
  return (first ? outer.state_values * values * kFloatBytes : 0) + whole;
}

/// Operations of a forward pass: twice the weights that multiply, and attention in full.
StageWork work_of(const MeshWorkload& workload, const MeshChoice& choice, const StageShare& stage) {
  const ModelShape& s = workload.shape;
  const auto rows = static_cast<double>(micro_batch_rows(workload, choice));
  double layers = 0, outside = 0, again = 0;
  for (const TensorShare& tensor : stage.tensors) {
    const auto elements = static_cast<double>(tensor.elements);
    if (tensor.tensor->layer != kNoLayer)
      layers += elements;
    else if (tensor.multiplies)
      outside += elements;
    // What the stage's last layer has kept is still there when its backward pass begins.
    if (tensor.tensor->layer != kNoLayer && tensor.tensor->layer + 1 != stage.layers.end) {
      again += elements;
    }
  }
  const auto width = s.query_width() / choice.tp;                   // tp divides the heads
  const auto keys_of = [&](std::int64_t begin, std::int64_t end) {  // a window's, or the context's
    double keys = 0;
    for (std::int64_t layer = begin; layer < end; ++layer) {
      const std::int64_t window = s.window(layer);
      keys += static_cast<double>(window == 0 ? workload.context : window);
    }
    return keys;
  };
  const double a_key = 4 * static_cast<double>(width);
  const double attention = a_key * keys_of(stage.layers.begin, stage.layers.end);
  StageWork work;
  work.forward_flops = rows * (2 * (layers + outside) + attention);
  work.attention_flops = rows * attention;
  work.head_flops = rows * 2 * outside;
  if (choice.recompute == Recompute::kFull) {
    work.again_attention_flops = rows * a_key * keys_of(stage.layers.begin, stage.layers.end - 1);
    work.again_flops = rows * 2 * again + work.again_attention_flops;
  }
  const PassBytes bytes = pass_bytes(workload, choice, stage);
  work.forward_bytes = bytes.forward;
  work.backward_bytes = bytes.backward + bytes.again;
  work.forward = tensor_forward(workload, choice, stage);
  work.backward = tensor_backward(workload, choice, stage);
  work.weight = tensor_weight(workload, choice, stage);
  return work;
}

/// Of the optimizer on one rank. Ranks without ZeRO are taken to update even parts of the whole
/// model together, as those that are threads do.
double update_of(const ModelLayout& layout, const MeshWorkload& workload, const MeshChoice& choice,
                 const MeshShare& share) {
  double values = 0, moments = 0, parts = choice.ranks();
  if (choice.zero >= 1 && choice.dp > 1) {
    const State state = state_of(workload, share);
    values = static_cast<double>(state.parameters);
    moments = static_cast<double>(state.moments);
    parts = choice.dp;
  } else {
    for (const TensorInfo& tensor : layout.tensors()) {
      const auto elements = static_cast<double>(tensor.elements.size());
      values += elements;
      moments += elements * static_cast<double>(moments_of(workload.inner, tensor));
    }
  }
  return update_bytes(values / parts, moments / parts);
}

RankCost cost_of(const ModelLayout& layout, const MeshWorkload& workload, const MeshChoice& choice,
                 const PipelineSchedule& rounds, int pipeline_rank) {
  const MeshShare share = mesh_share(layout, choice, pipeline_rank);
  RankCost cost;
  cost.pipeline_rank = pipeline_rank;
  cost.elements = state_of(workload, share).parameters;
  cost.memory = memory_of(workload, choice, share, rounds, pipeline_rank);
  cost.memory.outer = outer_bytes(workload.outer, choice, layout.elements(), pipeline_rank == 0);
  cost.update_bytes = update_of(layout, workload, choice, share);
  cost.message_bytes = message_bytes(workload, choice);
  for (const StageShare& stage : share.stages) {
    const StageWork work = work_of(workload, choice, stage);
    cost.flops +=
        static_cast<double>(choice.micro_batches) * (3 * work.forward_flops + work.again_flops);
    cost.volumes.tensor += scaled(work.forward, choice.micro_batches);
    cost.volumes.tensor += scaled(work.backward, choice.micro_batches);
    cost.volumes.tensor += scaled(work.weight, choice.micro_batches);
    cost.stages.push_back(work);
  }
  add_step_volumes(layout, workload, choice, share, cost.volumes);
  cost.volumes.site = site_volume(layout, choice, share, pipeline_rank);
  cost.data = data_volumes(workload, choice, share, pipeline_rank);
  cost.volumes.data += scaled(cost.data.reduce, cost.data.reduces);
  cost.volumes.data += cost.data.gathered;
  return cost;
}

}  // namespace

Volume& Volume::operator+=(const Volume& other) {
  operations += other.operations;
  payload_bytes += other.payload_bytes;
  sent_bytes += other.sent_bytes;
  hops += other.hops;
  return *this;
}

std::string mesh_text(const MeshChoice& choice) {
  return fmt::format("tp {} x pp {} x dp {}", choice.tp, choice.pp, choice.dp);
}

RankCost rank_cost(const MeshWorkload& workload, const MeshChoice& choice, int pipeline_rank) {
  ISTHMUS_CHECK(pipeline_rank >= 0 && pipeline_rank < choice.pp, pipeline_rank, choice.pp);
  return cost_of(ModelLayout(workload.shape), workload, choice, first_rounds(choice),
                 pipeline_rank);
}

std::vector<RankCost> rank_costs(const ModelLayout& layout, const MeshWorkload& workload,
                                 const MeshChoice& choice) {
  const PipelineSchedule rounds = first_rounds(choice);
  std::vector<RankCost> costs;
  for (int rank = 0; rank < choice.pp; ++rank) {
    costs.push_back(cost_of(layout, workload, choice, rounds, rank));
  }
  return costs;
}

}  // namespace isthmus::plan
