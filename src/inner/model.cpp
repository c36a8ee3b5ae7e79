// SPDX-License-Identifier: Apache-2.0
#include "inner/model.h"

#include <algorithm>

#include "core/check.h"
#include "inner/gpt2.h"
#include "inner/llama.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"

namespace isthmus {
namespace {

template <typename T>
std::unique_ptr<const Block<kernels::RealOf<T>>> make_block_on(const ModelShape& shape) {
  return shape.architecture == Architecture::kGpt2 ? make_gpt2_block<T>(shape)
                                                   : make_llama_block<T>(shape);
}

template <typename Real>
std::unique_ptr<const Block<Real>> make_block(const ModelShape& shape, bool bf16) {
  if constexpr (std::is_same_v<Real, float>) {
    if (bf16) return make_block_on<kernels::Bf16>(shape);
  }
  ISTHMUS_CHECK(!bf16, shape.d_model);
  return make_block_on<Real>(shape);
}

}  // namespace

LossSum& LossSum::operator+=(const LossSum& other) {
  loss += other.loss;
  z_loss += other.z_loss;
  targets += other.targets;
  return *this;
}

/// For training `stream` holds the residual stream before each layer and after the last one, and
/// each layer has its memory, or all share one that is filled again. For inference two rows of
/// `stream` take turns over one memory.
template <typename Real>
struct LanguageModel<Real>::Arena {
  std::vector<Real*> stream;   // each (rows, d_model)
  std::vector<void*> memory;   // one a layer, or one
  Real *hidden, *mean, *rstd;  // of the final norm; `hidden` becomes the gradient of the stream
  Real* other;                 // backward only
  void* scratch;               // the same

  Arena(Carver& carver, const ModelShape& s, const Block<Real>& block, std::int64_t rows,
        Purpose purpose) {
    const bool training = purpose != Purpose::kInference;
    const std::int64_t layers = training ? s.layers : 1;
    const std::int64_t memories = purpose == Purpose::kTraining ? s.layers : 1;
    for (std::int64_t i = 0; i <= layers; ++i)
      stream.push_back(carver.take<Real>(rows * s.d_model));
    for (std::int64_t i = 0; i < memories; ++i) {
      memory.push_back(carver.take<std::byte>(block.memory_bytes(rows)));
    }
    hidden = carver.take<Real>(rows * s.d_model);
    mean = carver.take<Real>(rows);
    rstd = carver.take<Real>(rows);
    other = carver.take<Real>(training ? rows * s.d_model : 0);
    scratch = carver.take<std::byte>(training ? block.scratch_bytes(rows) : 0);
  }
};

template <typename Real>
std::int64_t LanguageModel<Real>::arena_bytes(const ModelLayout& layout, std::int64_t rows,
                                              Purpose purpose, bool bf16) {
  const auto block = make_block<Real>(layout.shape(), bf16);
  Carver counter;
  static_cast<void>(Arena(counter, layout.shape(), *block, rows, purpose));
  return counter.bytes();
}

template <typename Real>
LanguageModel<Real>::LanguageModel(const ModelLayout& layout, std::int64_t rows, Purpose purpose,
                                   bool bf16)
    : layout_(layout),
      rows_(rows),
      purpose_(purpose),
      bf16_(bf16),
      block_(make_block<Real>(layout.shape(), bf16)),
      memory_(static_cast<std::size_t>(arena_bytes(layout, rows, purpose, bf16))) {
  Carver carver(memory_.data());
  arena_ = std::make_unique<const Arena>(carver, layout.shape(), *block_, rows, purpose);
}

template <typename Real>
LanguageModel<Real>::~LanguageModel() = default;

template <typename Real>
void LanguageModel<Real>::check(const TokenBatch& batch) const {
  const std::int64_t tokens = batch.sequences * batch.length;
  ISTHMUS_CHECK(batch.sequences >= 1 && batch.length >= 1, batch.sequences, batch.length);
  ISTHMUS_CHECK(batch.length <= layout_.shape().positions, batch.length);
  ISTHMUS_CHECK(tokens <= rows_, tokens, rows_);
  ISTHMUS_CHECK(static_cast<std::int64_t>(batch.inputs.size()) == tokens, batch.inputs.size());
  ISTHMUS_CHECK(static_cast<std::int64_t>(batch.targets.size()) == tokens, batch.targets.size());
}

template <typename Real>
void LanguageModel<Real>::final_norm(const Pass& pass, Weights<Real>& weights, const Real* x) {
  const ModelShape& s = layout_.shape();
  kernels::NormForward<Real> norm{.rows = pass.rows(),
                                  .channels = s.d_model,
                                  .eps = s.norm_eps,
                                  .x = x,
                                  .y = arena_->hidden,
                                  .rstd = arena_->rstd};
  norm.weight = weights.tensor(layout_.final_norm_weight());
  if (s.architecture == Architecture::kGpt2) {
    norm.bias = weights.tensor(layout_.final_norm_bias());
    norm.mean = arena_->mean;
    kernels::layer_norm_forward(pass.team, norm);
  } else {
    kernels::rms_norm_forward(pass.team, norm);
  }
}

template <typename Real>
void LanguageModel<Real>::final_norm_backward(const Pass& pass, Weights<Real>& weights,
                                              Real* gradients) {
  const ModelShape& s = layout_.shape();
  const auto gradient = [&](std::size_t index) {
    return gradients + layout_.tensors()[index].elements.begin;
  };
  kernels::NormBackward<Real> norm{.rows = pass.rows(),
                                   .channels = s.d_model,
                                   .dy = arena_->other,
                                   .s = arena_->stream.back(),
                                   .weight = weights.tensor(layout_.final_norm_weight()),
                                   .rstd = arena_->rstd,
                                   .ds = arena_->hidden};
  norm.d_weight = gradient(layout_.final_norm_weight());
  if (s.architecture == Architecture::kGpt2) {
    norm.mean = arena_->mean;
    norm.d_bias = gradient(layout_.final_norm_bias());
    kernels::layer_norm_backward(pass.team, norm);
  } else {
    kernels::rms_norm_backward(pass.team, norm);
  }
}

template <typename Real>
void LanguageModel<Real>::embed(const Pass& pass, Weights<Real>& weights, const std::int32_t* ids) {
  const ModelShape& s = layout_.shape();
  const bool gpt2 = s.architecture == Architecture::kGpt2;
  if (!weights.by_rows()) {
    // Both tensors at once: what `tensor` gives stays valid until `layer` is called.
    const kernels::Embedding<Real> embedding{.rows = pass.rows(),
                                             .seq = pass.length,
                                             .channels = s.d_model,
                                             .vocab = s.vocab,
                                             .ids = ids};
    const Real* positions = gpt2 ? weights.tensor(layout_.positions()) : nullptr;
    kernels::embedding_forward(pass.team, embedding, weights.tensor(layout_.embedding()), positions,
                               arena_->stream[0]);
    return;
  }
  // The sums of embedding_forward, from those rows of the table that the batch has.
  Real* const y = arena_->stream[0];
  for (std::int64_t r = 0; r < pass.rows(); ++r) {
    ISTHMUS_CHECK(ids[r] >= 0 && ids[r] < s.vocab, r, ids[r], s.vocab);
    std::copy_n(weights.rows(layout_.embedding(), ids[r], 1), s.d_model, y + r * s.d_model);
  }
  if (!gpt2) return;
  for (std::int64_t position = 0; position < pass.length; ++position) {
    const Real* const row = weights.rows(layout_.positions(), position, 1);
    for (std::int64_t r = position; r < pass.rows(); r += pass.length) {
      for (std::int64_t i = 0; i < s.d_model; ++i) y[r * s.d_model + i] += row[i];
    }
  }
}

template <typename Real>
const Real* LanguageModel<Real>::run_layers(const Pass& pass, Weights<Real>& weights,
                                            const std::int32_t* ids, bool keep_layers) {
  const ModelShape& s = layout_.shape();
  embed(pass, weights, ids);
  const Real* x = arena_->stream[0];
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const auto slot = static_cast<std::size_t>(keep_layers ? layer : 0);
    Real* y = arena_->stream[keep_layers ? slot + 1 : static_cast<std::size_t>(layer + 1) % 2];
    void* memory = arena_->memory[arena_->memory.size() > 1 ? slot : 0];
    block_->forward(pass, weights.layer(layer), x, memory, y);
    x = y;
  }
  final_norm(pass, weights, x);
  return arena_->hidden;
}

template <typename Real>
LossSum LanguageModel<Real>::head(const Pass& pass, Weights<Real>& weights, const TokenBatch& batch,
                                  const BackwardOptions<Real>* backward) {
  const ModelShape& s = layout_.shape();
  kernels::CrossEntropy<Real> ce{.tokens = pass.rows(),
                                 .channels = s.d_model,
                                 .vocab = s.vocab,
                                 .hidden = arena_->hidden,
                                 .targets = batch.targets.data()};
  if (weights.by_rows() && backward == nullptr) {
    ce.weight_rows = [&](std::int64_t first, std::int64_t count) {
      return weights.rows(layout_.head(), first, count);
    };
  } else {
    ce.weight = weights.tensor(layout_.head());
  }
  ce.z_loss = s.z_loss;
  ce.bf16 = bf16_;
  if (backward != nullptr) {
    ce.gradient_scale = backward->gradient_scale;
    ce.d_hidden = arena_->other;
    ce.d_weight = backward->gradients + layout_.tensors()[layout_.head()].elements.begin;
  }
  const kernels::CrossEntropySum sum = kernels::cross_entropy(pass.team, ce);
  return {.loss = sum.loss, .z_loss = sum.z_loss, .targets = sum.counted};
}

template <typename Real>
void LanguageModel<Real>::backward(const Pass& pass, Weights<Real>& weights,
                                   const std::int32_t* ids, const BackwardOptions<Real>& options) {
  const ModelShape& s = layout_.shape();
  const auto ready = [&](std::size_t tensor) {
    if (options.on_ready) options.on_ready(tensor);
  };
  const auto gradient = [&](std::size_t tensor) {
    return options.gradients + layout_.tensors()[tensor].elements.begin;
  };
  if (!s.tied) ready(layout_.head());
  final_norm_backward(pass, weights, options.gradients);
  if (s.architecture == Architecture::kGpt2) ready(layout_.final_norm_bias());
  ready(layout_.final_norm_weight());
  Real* d_stream = arena_->hidden;
  for (std::int64_t layer = s.layers - 1; layer >= 0; --layer) {
    const auto slot = static_cast<std::size_t>(layer);
    const bool shared = arena_->memory.size() == 1;
    void* memory = arena_->memory[shared ? 0 : slot];
    if (shared && layer + 1 != s.layers) {  // the last layer's is still there
      block_->forward(pass, weights.layer(layer), arena_->stream[slot], memory, arena_->other);
    }
    block_->backward(pass, weights.layer(layer), arena_->stream[slot], memory, arena_->scratch,
                     arena_->other, d_stream,
                     options.gradients + layout_.layer_elements(layer).begin);
    const std::size_t first = layout_.first_tensor(layer);
    for (std::size_t i = layout_.tensors_per_layer(); i-- > 0;) ready(first + i);
  }
  const bool gpt2 = s.architecture == Architecture::kGpt2;
  const kernels::Embedding<Real> embedding{
      .rows = pass.rows(), .seq = pass.length, .channels = s.d_model, .vocab = s.vocab, .ids = ids};
  kernels::embedding_backward(pass.team, embedding, d_stream, gradient(layout_.embedding()),
                              gpt2 ? gradient(layout_.positions()) : nullptr);
  if (gpt2) ready(layout_.positions());
  ready(layout_.embedding());
}

template <typename Real>
LossSum LanguageModel<Real>::loss(kernels::ThreadTeam& team, Weights<Real>& weights,
                                  const TokenBatch& batch) {
  check(batch);
  const Pass pass{team, batch.sequences, batch.length};
  run_layers(pass, weights, batch.inputs.data(), false);
  return head(pass, weights, batch, nullptr);
}

template <typename Real>
LossSum LanguageModel<Real>::loss_and_gradients(kernels::ThreadTeam& team, Weights<Real>& weights,
                                                const TokenBatch& batch,
                                                const BackwardOptions<Real>& options) {
  ISTHMUS_CHECK(purpose_ != Purpose::kInference);
  check(batch);
  const auto begin = [&](PassPart part) {
    if (options.on_part) options.on_part(part);
  };
  const Pass pass{team, batch.sequences, batch.length};
  begin(PassPart::kForward);
  run_layers(pass, weights, batch.inputs.data(), true);
  begin(PassPart::kHead);
  const LossSum sum = head(pass, weights, batch, &options);
  begin(PassPart::kBackward);
  backward(pass, weights, batch.inputs.data(), options);
  begin(PassPart::kEnd);
  return sum;
}

template <typename Real>
void LanguageModel<Real>::next_token_logits(kernels::ThreadTeam& team, Weights<Real>& weights,
                                            std::span<const std::int32_t> tokens, Real* logits) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  ISTHMUS_CHECK(length >= 1 && length <= layout_.shape().positions && length <= rows_, length);
  const std::int64_t d = layout_.shape().d_model;
  const Pass pass{team, 1, length};
  const Real* last = run_layers(pass, weights, tokens.data(), false) + (length - 1) * d;
  kernels::gemm<Real>(team, {.m = 1,
                             .n = layout_.shape().vocab,
                             .k = d,
                             .a = last,
                             .lda = d,
                             .b = weights.tensor(layout_.head()),
                             .ldb = d,
                             .b_transposed = true,
                             .c = logits,
                             .ldc = layout_.shape().vocab,
                             .bf16 = bf16_});
}

template class LanguageModel<float>;
template class LanguageModel<double>;

}  // namespace isthmus
