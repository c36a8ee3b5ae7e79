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

#include "inner/arena.h"
#include "inner/model_block.h"
#include "inner/model_layout.h"
#include "isthmus/inner_loop.h"
#include "kernels/aligned_buffer.h"

namespace isthmus {

/// Where a pass reads its weights.
template <typename Real>
class Weights {
 public:
  virtual ~Weights() = default;
  /// Values of a tensor outside the layers; valid until `layer` is called.
  [[nodiscard]] virtual const Real* tensor(std::size_t index) = 0;
  /// Rows [first, first + count) of a matrix outside the layers; valid until the next call of
  /// anything. REQUIRES: by_rows().
  [[nodiscard]] virtual const Real* rows(std::size_t, std::int64_t, std::int64_t) {
    return nullptr;
  }
  /// True where a pass should read matrices outside the layers by `rows`, since they would have to
  /// be made up whole. The results have the same bits.
  [[nodiscard]] virtual bool by_rows() const { return false; }
  /// Values of a layer's tensors one after another; valid until the next call of either.
  [[nodiscard]] virtual const Real* layer(std::int64_t layer) = 0;
};

/// All weights in one array in canonical order.
template <typename Real>
class FlatWeights final : public Weights<Real> {
 public:
  FlatWeights(const ModelLayout& layout, const Real* values) : layout_(layout), values_(values) {}
  [[nodiscard]] const Real* tensor(std::size_t index) override {
    return values_ + layout_.tensors()[index].elements.begin;
  }
  [[nodiscard]] const Real* layer(std::int64_t layer) override {
    return values_ + layout_.layer_elements(layer).begin;
  }

 private:
  const ModelLayout& layout_;
  const Real* values_;
};

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
  Real* gradients = nullptr;  // canonical layout, accumulated
  /// Called with each tensor whose gradient this pass has finished, in backward order; may be
  /// empty.
  GradientReady on_ready;
  /// Called as a part begins, for timing; may be empty.
  std::function<void(PassPart)> on_part;
};

template <typename Real>
class LanguageModel {
 public:
  enum class Purpose {
    kTraining,   // keeps every layer's activations for the backward pass
    kRecompute,  // training that keeps the residual stream alone and runs each layer forward again
    kInference,  // keeps one layer's activations
  };

  /// `layout` is borrowed. rows: most sequences * length of a batch. bf16 (Real = float only):
  /// matrix products take bfloat16 operands and add in float, and what layers keep and their wide
  /// gradients lie in memory as bfloat16; weights, their gradients and the residual stream stay
  /// float.
  /// THROWS: std::bad_alloc.
  LanguageModel(const ModelLayout& layout, std::int64_t rows, Purpose purpose, bool bf16 = false);
  ~LanguageModel();

  /// Bytes of the arena such a model has.
  [[nodiscard]] static std::int64_t arena_bytes(const ModelLayout& layout, std::int64_t rows,
                                                Purpose purpose, bool bf16 = false);

  [[nodiscard]] std::size_t held_bytes() const { return memory_.bytes(); }
  /// Forward only. REQUIRES (here and below): sequences * length <= rows, length <= positions, ids
  /// in [0, vocab).
  [[nodiscard]] LossSum loss(kernels::ThreadTeam& team, Weights<Real>& weights,
                             const TokenBatch& batch);
  /// Forward and backward of loss + z-loss. REQUIRES: made for training.
  LossSum loss_and_gradients(kernels::ThreadTeam& team, Weights<Real>& weights,
                             const TokenBatch& batch, const BackwardOptions<Real>& options);
  /// logits (vocab,) that follow the last token of `tokens`.
  void next_token_logits(kernels::ThreadTeam& team, Weights<Real>& weights,
                         std::span<const std::int32_t> tokens, Real* logits);

 private:
  struct Arena;
  /// Runs the layers and the final norm. RETURNS: the normed hidden state (rows, d_model).
  const Real* run_layers(const Pass& pass, Weights<Real>& weights, const std::int32_t* ids,
                         bool keep_layers);
  [[nodiscard]] LossSum head(const Pass& pass, Weights<Real>& weights, const TokenBatch& batch,
                             const BackwardOptions<Real>* backward);
  void backward(const Pass& pass, Weights<Real>& weights, const std::int32_t* ids,
                const BackwardOptions<Real>& options);
  void embed(const Pass& pass, Weights<Real>& weights, const std::int32_t* ids);
  void final_norm(const Pass& pass, Weights<Real>& weights, const Real* x);
  void final_norm_backward(const Pass& pass, Weights<Real>& weights, Real* gradients);
  void check(const TokenBatch& batch) const;

  const ModelLayout& layout_;
  std::int64_t rows_;
  Purpose purpose_;
  bool bf16_;
  std::unique_ptr<const Block<Real>> block_;
  kernels::AlignedBuffer memory_;
  std::unique_ptr<const Arena> arena_;
};

}  // namespace isthmus
