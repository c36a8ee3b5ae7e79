// SPDX-License-Identifier: Apache-2.0
#include "inner/loop/model_cost.h"

#include <algorithm>

#include "inner/mesh/canonical_exchange.h"
#include "inner/model/model.h"
#include "inner/model/optimizer.h"
#include "kernels/cross_entropy.h"
#include "kernels/muon.h"

namespace isthmus {
namespace {
constexpr auto kCostFloatBytes = static_cast<std::int64_t>(sizeof(float));

std::int64_t logits_bytes(const ModelLayout& layout, std::int64_t rows) {
  const std::int64_t vocab = layout.shape().vocab;
  return kernels::cross_entropy_chunk(rows, vocab) * vocab * kCostFloatBytes;
}

/// N of training_flops_per_token.
std::int64_t used_weights(const ModelLayout& layout) {
  const ModelShape& s = layout.shape();
  std::int64_t weights = layout.elements();
  if (s.architecture == Architecture::kGpt2) {
    weights -= layout.tensors()[layout.positions()].elements.size();
  }
  if (!s.tied) weights -= layout.tensors()[layout.embedding()].elements.size();
  return weights;
}
}  // namespace

double training_flops_per_token(const ModelLayout& layout, std::int64_t context) {
  const ModelShape& s = layout.shape();
  if (s.lora.rank > 0) {  // of the frozen weights no gradients
    const ModelLayout base(without_lora(s));
    return training_flops_per_token(base, context) - 2.0 * static_cast<double>(used_weights(base)) +
           6.0 * static_cast<double>(layout.elements());
  }
  const std::int64_t weights = used_weights(layout);
  double keys = 0;  // over the layers: a window's, or the context's
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::int64_t window = s.window(layer);
    keys += static_cast<double>(window == 0 ? context : std::min(window, context));
  }
  return 6.0 * static_cast<double>(weights) + 12.0 * static_cast<double>(s.query_width()) * keys;
}

double optimizer_flops(const ModelLayout& layout, const InnerConfig& inner) {
  double flops = 0;
  if (inner.optimizer != "muon") return flops;
  for (const TensorInfo& tensor : layout.tensors()) {
    if (tensor.hidden_matrix()) flops += kernels::muon_flops(tensor.shape[0], tensor.shape[1]);
  }
  return flops;
}

MemoryEstimate training_memory(const ModelLayout& layout, const InnerConfig& inner,
                               std::int64_t rows, Recompute recompute, bool bf16,
                               std::int64_t micro_batches) {
  MemoryEstimate memory;
  memory.parameters = layout.elements() * kCostFloatBytes;
  memory.gradients = memory.parameters;
  memory.moments = InnerOptimizer::moment_values(inner, layout) * kCostFloatBytes;
  if (inner.optimizer == "muon") {
    for (const TensorInfo& tensor : layout.tensors()) {
      if (!tensor.hidden_matrix()) continue;
      memory.update =
          std::max(memory.update, kernels::muon_scratch_bytes(tensor.shape[0], tensor.shape[1]));
    }
  }
  using Model = LanguageModel<float>;
  memory.activations = Model::arena_bytes(layout, rows, Model::training(recompute), bf16);
  if (layout.shape().tied) {
    memory.activations += EmbeddingRows<float>::bytes(
        embedding_rows_size(layout, rows * micro_batches, micro_batches));
  }
  memory.logits = logits_bytes(layout, rows);
  return memory;
}

MemoryEstimate mesh_memory(const ModelLayout& layout, const InnerConfig& inner,
                           const MeshOptions& options) {
  const std::int64_t rows = options.micro_batch_sequences() * options.context;
  MemoryEstimate memory =
      options.purpose == LanguageModel<float>::Purpose::kInference
          ? inference_memory(layout, rows, options.bf16)
          : training_memory(layout, inner, rows, Recompute::kNone, options.bf16);
  if (options.zero >= 1) memory.gradients = memory.moments = 0;  // ranks have theirs
  memory.update += memory.parameters;  // a copy of other weights, for evaluations
  const std::int64_t vocab = layout.shape().vocab;
  const std::int64_t share = (vocab + options.mesh.tp - 1) / options.mesh.tp;
  memory.logits = kernels::cross_entropy_chunk(rows, share) * share * kCostFloatBytes;
  memory.activations = 0;
  for (int rank = 0; rank < (options.processes ? 1 : options.mesh.ranks()); ++rank) {
    const std::int64_t stored = MeshRank::stored_bytes(layout, options, rank, options.processes);
    memory.shares += stored;
    memory.activations += MeshRank::bytes(layout, options, rank, options.processes) - stored;
  }
  if (options.processes) {  // the first, where most is
    memory.activations += CanonicalExchange::bytes(layout, options);
    return memory;
  }
  memory.logits *= std::int64_t{options.mesh.dp} * options.mesh.tp;
  return memory;
}

MemoryEstimate inference_memory(const ModelLayout& layout, std::int64_t rows, bool bf16) {
  MemoryEstimate memory;
  memory.parameters = layout.elements() * kCostFloatBytes;
  for (std::int64_t l = 0; l < layout.shape().layers; ++l) {
    memory.update = std::max(memory.update, layout.layer_elements(l).size() * kCostFloatBytes);
  }
  memory.activations = LanguageModel<float>::arena_bytes(
      layout, rows, LanguageModel<float>::Purpose::kInference, bf16);
  memory.logits = logits_bytes(layout, rows);
  return memory;
}

}  // namespace isthmus
