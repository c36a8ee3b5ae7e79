// SPDX-License-Identifier: Apache-2.0
// A language model: embedding, layers, final norm and output head with cross-entropy, forward and
// hand-written backward, over weights and gradients in the canonical layout.
//
// All activations are in one arena allocated once for the largest batch; a pass allocates nothing.
// Weights and gradients belong to the caller. One thread drives a model; its kernels use the
// threads of its team. DETERMINISM: results do not depend on the team's size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "inner/model/arena.h"
#include "inner/model/embedding_rows.h"
#include "inner/model/lora.h"
#include "inner/model/model_block.h"
#include "inner/model/model_embedding.h"
#include "inner/model/model_gradients.h"
#include "inner/model/model_layout.h"
#include "inner/model/model_weights.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "kernels/aligned_buffer.h"

namespace isthmus {

/// Sums over the targets of a batch; targets below zero do not count.
struct LossSum {
  double loss = 0;    // -log p[target], in nats
  double z_loss = 0;  // weight * log(Z)^2
  std::int64_t targets = 0;
  LossSum& operator+=(const LossSum& other);
};

/// Parts of a training pass, in the order in which they begin.
enum class PassPart { kForward, kHead, kBackward, kEnd };

template <typename Real>
struct BackwardOptions {
  /// d(objective) / d(sum of losses): 1 / (targets in the mean).
  double gradient_scale = 1;
  /// Canonical layout, added to. Null, with `places` null too: the weights are frozen
  /// (train_adapters).
  Real* gradients = nullptr;
  /// Destination of the gradients in place of `gradients`; may be null.
  Gradients<Real>* places = nullptr;
  /// For a tied table: keeps the embedding's part of the gradient until the `last` micro-batch of a
  /// step. If this model has the head too, the part is then added to the table; else the caller
  /// sends it to the stage with the head, and `on_ready` is not called for the table in that
  /// micro-batch. Null: the part is added to the table at once.
  EmbeddingRows<Real>* embedding_rows = nullptr;
  bool last = true;
  /// Called for each tensor whose gradient this pass has completed, in backward order; may be
  /// empty.
  GradientReady on_ready;
  /// Called as a part begins, for timing; may be empty.
  std::function<void(PassPart)> on_part;

  [[nodiscard]] Real* tensor(const ModelLayout& layout, std::size_t index) const {
    if (places != nullptr) return places->tensor(index);
    return gradients == nullptr ? nullptr : gradients + layout.tensors()[index].elements.begin;
  }
  [[nodiscard]] Real* layer(const ModelLayout& layout, std::int64_t index) const {
    if (places != nullptr) return places->layer(index);
    return gradients == nullptr ? nullptr : gradients + layout.layer_elements(index).begin;
  }
};

template <typename Real>
class LanguageModel {
 public:
  enum class Purpose {
    kTraining,   // keeps every layer's activations for the backward pass
    kSelective,  // as kTraining, but a layer recomputes elementwise results (LayerKeeps::kProducts)
    kRecompute,  // training that keeps only the residual stream and runs each layer forward again
    kInference,  // keeps one layer's activations
    // Training with a separate pass for the weight gradients of the layers' matrix products. Its
    // operands are stored over data that only the first pass reads, with more scratch.
    kSplitBackward,
  };
  [[nodiscard]] static constexpr Purpose training(Recompute recompute) {
    if (recompute == Recompute::kNone) return Purpose::kTraining;
    return recompute == Recompute::kFull ? Purpose::kRecompute : Purpose::kSelective;
  }

  /// `layout` is borrowed. rows: largest sequences * length of a batch. row_shares: number of ranks
  /// over which the stream's rows are split (TensorGroup::split). bf16 (Real = float only): matrix
  /// products have bfloat16 operands and float accumulation, and kept activations and their wide
  /// gradients are stored as bfloat16; weights, their gradients and the residual stream stay float.
  /// working: borrowed scratch of `working_bytes`, which models that run in turn can share, since
  /// it holds nothing between calls. Null: the model has its own scratch.
  /// THROWS: std::bad_alloc.
  LanguageModel(const ModelLayout& layout, std::int64_t rows, Purpose purpose, bool bf16 = false,
                int row_shares = 1, void* working = nullptr);
  ~LanguageModel();

  /// Bytes of such a model's arena, scratch included.
  [[nodiscard]] static std::int64_t arena_bytes(const ModelLayout& layout, std::int64_t rows,
                                                Purpose purpose, bool bf16 = false,
                                                int row_shares = 1);

  /// Bytes of the scratch within the arena.
  [[nodiscard]] static std::int64_t working_bytes(const ModelLayout& layout, std::int64_t rows,
                                                  Purpose purpose, bool bf16 = false,
                                                  int row_shares = 1);

  /// Bytes of the arena, without borrowed scratch.
  [[nodiscard]] std::size_t held_bytes() const { return memory_.bytes(); }
  /// From now on passes add `adapters` to the layers' matrix products, and backward passes compute
  /// only the adapters' gradients. Borrowed. REQUIRES: architecture llama, an unsplit backward
  /// pass.
  void train_adapters(Adapters<Real>* adapters);
  /// Forward only. REQUIRES (here and below): sequences * length <= rows, length <= shape.longest,
  /// ids in [0, vocab).
  [[nodiscard]] LossSum loss(kernels::ThreadTeam& team, Weights<Real>& weights,
                             const TokenBatch& batch);
  /// Forward and backward of loss + z-loss. REQUIRES: made for training.
  LossSum loss_and_gradients(kernels::ThreadTeam& team, Weights<Real>& weights,
                             const TokenBatch& batch, const BackwardOptions<Real>& options);
  /// logits (vocab,) that follow the last token of `tokens`.
  void next_token_logits(kernels::ThreadTeam& team, Weights<Real>& weights,
                         std::span<const std::int32_t> tokens, Real* logits);
  /// Appends `tokens` to the sequence of `cache`; logits as above, equal to rounding. Tokens are
  /// taken in passes of at most `rows`. REQUIRES: cache.seen() + tokens at most cache.positions()
  /// and shape.longest.
  void next_token_logits(kernels::ThreadTeam& team, Weights<Real>& weights, KeyValueCache& cache,
                         std::span<const std::int32_t> tokens, Real* logits);

  // A pipeline stage's parts of a pass, for layouts of a part of a model or of a tensor-parallel
  // rank: forward, head (on the stage that has it), backward, each once per micro-batch in this
  // order. A model holds one micro-batch at a time. pass.tensor sums over the ranks that share the
  // layers; all of them must make the same calls in the same order.

  /// Sets this rank's rows of the vocabulary; the default: all.
  void hold_vocabulary(const VocabularyShare& share);
  /// (own rows, d_model): the residual stream before the first layer. The caller fills it on a
  /// stage without embedding.
  [[nodiscard]] Real* stage_input() const;
  /// The stream after the last layer, of the last stage_forward.
  [[nodiscard]] const Real* stage_output() const { return output_; }
  /// On entry to `stage_backward` the gradient of the stage's output, which the caller fills on a
  /// stage without head; on return the gradient of the stage's input.
  [[nodiscard]] Real* stage_gradient() const;
  /// keep: true if a backward pass follows.
  void stage_forward(const Pass& pass, Weights<Real>& weights, const std::int32_t* ids, bool keep);
  /// RETURNS: the losses over the whole vocabulary, the same on every rank of pass.tensor.
  LossSum stage_head(const Pass& pass, Weights<Real>& weights, const TokenBatch& batch,
                     const BackwardOptions<Real>* backward);
  /// With a split backward pass it leaves out the gradients that `stage_backward_weight` adds.
  void stage_backward(const Pass& pass, Weights<Real>& weights, const std::int32_t* ids,
                      const BackwardOptions<Real>& options);
  /// REQUIRES: made for a split backward pass, after `stage_backward` of the same micro-batch.
  /// Reads neither weights nor `stage_gradient`, which may be in flight. If rows are split it
  /// gathers, so the ranks of pass.tensor must call it in the same order.
  void stage_backward_weight(const Pass& pass, const BackwardOptions<Real>& options);

 private:
  struct Arena;
  /// Sets the layer that block_ computes next.
  void enter_layer(std::int64_t layer);
  /// Layers and final norm only. RETURNS: the normed hidden state (rows, d_model).
  const Real* run_layers(const Pass& pass, Weights<Real>& weights, const std::int32_t* ids);
  void final_norm(const Pass& pass, Weights<Real>& weights, const Real* x);
  void final_norm_backward(const Pass& pass, Weights<Real>& weights,
                           const BackwardOptions<Real>& options);
  void check(const TokenBatch& batch) const;
  /// logits (vocab,) of one row of `hidden`.
  void head_logits(kernels::ThreadTeam& team, Weights<Real>& weights, const Real* hidden,
                   Real* logits) const;
  /// The pass for layer `layer` of this part of the model.
  [[nodiscard]] Pass of_layer(const Pass& pass, std::int64_t layer) const;

  const ModelLayout& layout_;
  std::int64_t rows_;
  Purpose purpose_;
  bool bf16_;
  BackwardPart part_;  // of stage_backward
  VocabularyShare vocabulary_;
  const Real* output_ = nullptr;
  std::unique_ptr<Block<Real>> block_;
  Adapters<Real>* adapters_ = nullptr;
  kernels::AlignedBuffer memory_;
  std::unique_ptr<const Arena> arena_;
};

}  // namespace isthmus
