// SPDX-License-Identifier: Apache-2.0
// A language model: embedding, layers, final norm and output head with cross-entropy, forward and
// hand-written backward, over weights and gradients in the canonical layout.
//
// All activations lie in one arena made once for the largest batch; a pass allocates nothing.
// Weights and gradients belong to the caller. One thread drives a model; the kernels spread over
// its team. DETERMINISM: results do not depend on the team's size.
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
  /// Canonical layout, accumulated; null, where there are no `places` either: the weights are
  /// frozen (train_adapters).
  Real* gradients = nullptr;
  /// Where they are added instead; may be null.
  Gradients<Real>* places = nullptr;
  /// Of a tied table: what the embedding adds is kept here until the `last` micro-batch of a step.
  /// Where the model has the head too it is added to the table then; else the caller gives it to
  /// the stage that has, whose `on_ready` is not told of the table in that micro-batch. Null: added
  /// to the table at once.
  EmbeddingRows<Real>* embedding_rows = nullptr;
  bool last = true;
  /// Called with each tensor whose gradient this pass has finished, in backward order; may be
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
    kSelective,  // the same less what a layer makes again without a product (LayerKeeps::kProducts)
    kRecompute,  // training that keeps the residual stream alone and runs each layer forward again
    kInference,  // keeps one layer's activations
    // Training whose weight gradients of the layers' products come in a pass of their own: what
    // they read is kept in the place of what the first part has read, with more scratch for it.
    kSplitBackward,
  };
  [[nodiscard]] static constexpr Purpose training(Recompute recompute) {
    if (recompute == Recompute::kNone) return Purpose::kTraining;
    return recompute == Recompute::kFull ? Purpose::kRecompute : Purpose::kSelective;
  }

  /// `layout` is borrowed. rows: most sequences * length of a batch. row_shares: ranks that the
  /// stream's rows are split over (TensorGroup::split). bf16 (Real = float only):
  /// matrix products take bfloat16 operands and add in float, and what layers keep and their wide
  /// gradients lie in memory as bfloat16; weights, their gradients and the residual stream stay
  /// float.
  /// working: scratch of `working_bytes`, borrowed, that models which take turns can share: nothing
  /// stays there from one call to the next. Null: the model has its own.
  /// THROWS: std::bad_alloc.
  LanguageModel(const ModelLayout& layout, std::int64_t rows, Purpose purpose, bool bf16 = false,
                int row_shares = 1, void* working = nullptr);
  ~LanguageModel();

  /// Bytes of the arena such a model has, its scratch included.
  [[nodiscard]] static std::int64_t arena_bytes(const ModelLayout& layout, std::int64_t rows,
                                                Purpose purpose, bool bf16 = false,
                                                int row_shares = 1);

  /// Of these, bytes of the scratch.
  [[nodiscard]] static std::int64_t working_bytes(const ModelLayout& layout, std::int64_t rows,
                                                  Purpose purpose, bool bf16 = false,
                                                  int row_shares = 1);

  /// Bytes of the arena, less what is borrowed.
  [[nodiscard]] std::size_t held_bytes() const { return memory_.bytes(); }
  /// From now on passes add `adapters` to the layers' products, and backward passes compute their
  /// gradients alone. Borrowed. REQUIRES: architecture llama, a backward pass in one part.
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

  // A pipeline stage's parts of a pass, for layouts of a part of a model or of a tensor-parallel
  // rank: forward, head (the stage that has it), backward, each once a micro-batch and in this
  // order; a model holds one micro-batch at a time. pass.tensor sums over the ranks that share the
  // layers, whose calls come in the same order.

  /// The rows of the vocabulary that this rank holds; the default: all.
  void hold_vocabulary(const VocabularyShare& share);
  /// (own rows, d_model): the residual stream before the first layer; filled by the caller where
  /// the stage has no embedding.
  [[nodiscard]] Real* stage_input() const;
  /// The stream after the last layer, of the last stage_forward.
  [[nodiscard]] const Real* stage_output() const { return output_; }
  /// On entry to `stage_backward` the gradient of the stage's output, filled by the caller where
  /// the stage has no head; afterwards that of its input.
  [[nodiscard]] Real* stage_gradient() const;
  /// keep: for a backward pass.
  void stage_forward(const Pass& pass, Weights<Real>& weights, const std::int32_t* ids, bool keep);
  /// RETURNS: the whole vocabulary's losses, the same on every rank of pass.tensor.
  LossSum stage_head(const Pass& pass, Weights<Real>& weights, const TokenBatch& batch,
                     const BackwardOptions<Real>* backward);
  /// Made for a split backward pass: without the gradients that `stage_backward_weight` adds.
  void stage_backward(const Pass& pass, Weights<Real>& weights, const std::int32_t* ids,
                      const BackwardOptions<Real>& options);
  /// REQUIRES: made for a split backward pass, after `stage_backward` of the same micro-batch.
  /// Reads neither weights nor `stage_gradient`, which may be on its way. Where rows are split it
  /// gathers, so the ranks of pass.tensor call it in the same order.
  void stage_backward_weight(const Pass& pass, const BackwardOptions<Real>& options);

 private:
  struct Arena;
  /// What block_ computes next.
  void enter_layer(std::int64_t layer);
  /// Layers and final norm, alone. RETURNS: the normed hidden state (rows, d_model).
  const Real* run_layers(const Pass& pass, Weights<Real>& weights, const std::int32_t* ids);
  void final_norm(const Pass& pass, Weights<Real>& weights, const Real* x);
  void final_norm_backward(const Pass& pass, Weights<Real>& weights,
                           const BackwardOptions<Real>& options);
  void check(const TokenBatch& batch) const;
  /// The pass as layer `layer` of this part of the model sees it.
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
