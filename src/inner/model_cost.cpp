// SPDX-License-Identifier: Apache-2.0
#include "inner/model_cost.h"

#include <algorithm>

#include "inner/model.h"
#include "inner/optimizer.h"

namespace isthmus {
namespace {
constexpr std::int64_t kLogitRows = 256;  // tokens per chunk in kernels/cross_entropy.cpp
constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
}  // namespace

double training_flops_per_token(const ModelLayout& layout, std::int64_t context) {
  const ModelShape& s = layout.shape();
  std::int64_t weights = layout.elements();
  if (s.architecture == Architecture::kGpt2) {
    weights -= layout.tensors()[layout.positions()].elements.size();
  }
  if (!s.tied) weights -= layout.tensors()[layout.embedding()].elements.size();
  return 6.0 * static_cast<double>(weights) + 12.0 * static_cast<double>(s.layers) *
                                                  static_cast<double>(s.query_width()) *
                                                  static_cast<double>(context);
}

MemoryEstimate training_memory(const ModelLayout& layout, const InnerConfig& inner,
                               std::int64_t rows) {
  MemoryEstimate memory;
  memory.parameters = layout.elements() * kFloatBytes;
  memory.gradients = memory.parameters;
  memory.moments = memory.parameters * InnerOptimizer::moments(inner);
  memory.activations =
      LanguageModel<float>::arena_bytes(layout, rows, LanguageModel<float>::Purpose::kTraining);
  memory.logits = std::min(rows, kLogitRows) * layout.shape().vocab * kFloatBytes;
  return memory;
}

}  // namespace isthmus
