// SPDX-License-Identifier: Apache-2.0
// The trainer inside a site, as the outer loop sees it. Implement this over your own trainer and
// the outer methods (ddp, localsgd, diloco, ...) run on top of it unchanged.
//
// Ownership: the inner loop owns parameters, gradients and its optimizer's state; the outer loop
// reads and writes parameters through the spans below, only between inner steps.
// Threads: one worker drives one InnerLoop from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/state.h"
#include "isthmus/types.h"

namespace isthmus {

/// Layer number of parameters that belong to no layer: embeddings, final norm, untied head.
inline constexpr int kNoLayer = -1;
/// Layer numbers are below this limit: the fragment table has an entry for every number up to the
/// largest.
inline constexpr int kLayerLimit = 1'000'000;

/// One tensor of the model. The order of `InnerLoop::parameters()` is the canonical flat layout:
/// `elements` is [s, s + size), s the sum of the sizes before. It is the same on every site, for
/// every mesh.
struct Parameter {
  std::string name;                 // unique, e.g. "transformer.h.0.attn.c_attn.weight"
  int layer = kNoLayer;             // 0 .. L-1 with L <= kLayerLimit, or kNoLayer
  std::vector<std::int64_t> shape;  // row-major
  CanonicalRange elements;          // canonical element ids
  std::span<float> values;          // fp32 master values on the host, see read_values
  bool decay = true;                // weight decay applies (usual for two or more dimensions)
};

/// Result of one inner step.
struct InnerStep {
  double loss = 0;          // mean over this worker's targets, in nats, before the step's update
  double grad_norm = 0;     // L2 norm before clipping
  std::int64_t tokens = 0;  // targets in the mean
  bool idle = false;  // this worker skips the step: slower workers take fewer steps than the clock
                      // counts
};

/// `sequences` windows of `length` tokens, row-major. Targets are the inputs shifted by one;
/// negative targets do not count.
struct TokenBatch {
  std::span<const std::int32_t> inputs;   // (sequences, length)
  std::span<const std::int32_t> targets;  // (sequences, length)
  std::int64_t sequences = 0;
  std::int64_t length = 0;
  /// (sequences, length): for each token the index in its window at which its document begins, if
  /// windows hold several documents ([data] pack = "documents"). A token attends only to its own
  /// document, and its position counts from that index. Empty: a window is one document.
  std::span<const std::int32_t> document_starts = {};
  /// Divisor of the loss sum in a training step. If workers have different numbers of targets, it
  /// is an equal share of all their targets, so that the mean of the workers' gradients is the
  /// gradient of the mean loss. 0: the number of this batch's targets that count.
  double mean_targets = 0;
};

/// Sum of losses over one part of an evaluation: a batch of windows, say.
struct EvalPart {
  std::int64_t batch = 0;  // number of the part in the fixed order of all parts, from 0
  double loss_sum = 0;     // mean loss of the part times its targets, in nats
  std::int64_t tokens = 0;
};

/// One source of an evaluation with several sources.
struct EvaluationSource {
  std::string name;             // as in data.mix
  std::int64_t first_part = 0;  // its parts end before the next source's first part
};

/// Share `index` of `count` equal shares of a worker's samples of a step.
struct SampleShare {
  int index = 0;  // 0 .. count - 1
  int count = 1;
};

/// Parameters for a forward pass in place of the inner loop's own: anchors for an evaluation, a
/// perturbed copy for SPSA. The pass requests parameters layer by layer; a span stays valid until
/// the pass requests a parameter of another layer.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  /// (n,) float32 of parameters()[parameter].
  [[nodiscard]] virtual std::span<const float> values(std::size_t parameter) const = 0;
  /// Rows [first, first + count) of a matrix, equal to those of `values(parameter)`; valid until
  /// the next call of either function. A source that computes its values overrides this so that a
  /// pass need not hold a large embedding whole. The default takes them from `values`. REQUIRES:
  /// `columns` is the length of a row.
  [[nodiscard]] virtual std::span<const float> rows(std::size_t parameter, std::int64_t columns,
                                                    std::int64_t first, std::int64_t count) const;
  /// True if `rows` is cheaper than `values` for part of a matrix.
  [[nodiscard]] virtual bool by_rows() const { return false; }
};

/// Called during the backward pass when a parameter's gradient is final, in backward order.
using GradientReady = std::function<void(std::size_t parameter)>;

/// Adam's settings, for a method that performs the update itself (1-bit Adam).
struct AdamSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;        // added outside the square root
  double weight_decay = 0;  // decoupled, for parameters with `decay`
  double clip = 0;          // largest L2 norm of the gradient; 0: off
};

/// Adam's two moments of one parameter, (n,) float32 each.
struct AdamMoments {
  std::span<float> first, second;
};

class InnerLoop {
 public:
  virtual ~InnerLoop() = default;

  /// The model's tensors in canonical order; stable (order, addresses) for the loop's lifetime.
  [[nodiscard]] virtual std::span<const Parameter> parameters() const = 0;

  /// Called before other code reads `Parameter::values` of these canonical elements: between inner
  /// steps, and while `loss` or `train_loss` reads its ParameterSource. A loop whose master values
  /// are elsewhere, for example on a device, writes them to the spans of `parameters()`, where they
  /// stay valid until its next step. Blocks until they are written; if another rank of the loop's
  /// mesh holds them, up to the timeout for that rank. `elements` may cut tensors and may be empty.
  /// The default does nothing: `values` are the master values.
  /// THROWS: PeerError when such a rank is lost; the loop must not be used afterwards.
  virtual void read_values(CanonicalRange elements);
  /// Called after other code has written `Parameter::values` of these canonical elements, between
  /// inner steps. Every element was written, or comes unchanged from `read_values`. A loop whose
  /// master values are elsewhere copies them before its next step. Blocks and THROWS as
  /// `read_values`: the unwritten rest of a tensor may have to be fetched. The default does
  /// nothing.
  virtual void wrote_values(CanonicalRange elements);
  /// The same for `adam_moments`: called between inner steps, before other code reads the moments
  /// of these canonical elements and after it has written some. A loop whose moments are elsewhere
  /// writes them to the spans of `adam_moments`, where they stay valid until its next step, and
  /// takes written values over before its optimizer's next update. Block and THROW as
  /// `read_values`. The defaults do nothing: the spans are the moments.
  virtual void read_moments(CanonicalRange elements);
  virtual void wrote_moments(CanonicalRange elements);

  /// One whole inner step t >= 1: forward, backward, clip, optimizer update. Blocks.
  virtual InnerStep train_step(StepIndex t) = 0;

  /// Forward and backward of step t without an update; fills `gradient(i)`. Blocks.
  /// `on_ready` (may be empty) is called on the calling thread.
  /// THROWS: ConfigError unless overridden. Needed by method ddp.
  virtual InnerStep gradients(StepIndex t, const GradientReady& on_ready);
  /// The gradient of parameter i, (n,) float32; writable, so that an exchange can put the mean
  /// there. THROWS: ConfigError unless overridden. Needed by method ddp.
  [[nodiscard]] virtual std::span<float> gradient(std::size_t parameter);
  /// Clips the gradients in the views of `gradient(i)`, then updates once with the inner optimizer.
  /// RETURNS: the L2 norm before clipping.
  /// THROWS: ConfigError unless overridden. Needed by method ddp.
  virtual double apply_gradients(StepIndex t);

  /// Forward only: mean cross-entropy in nats over the batch's targets, with parameters read from
  /// `source`. Blocks. THROWS: ConfigError unless overridden. Needed for evaluation.
  [[nodiscard]] virtual double loss(const TokenBatch& batch, const ParameterSource& source);

  /// Forward only: loss of this worker's training samples of step t, or of a share of them, with
  /// parameters read from `source`; the loop's own parameters do not change. `grad_norm` stays 0.
  /// Blocks. THROWS: ConfigError unless overridden, or when the samples do not divide into the
  /// shares. Needed by method spsa, which calls neither train_step nor gradients, so such a run
  /// needs no memory for gradients and moments.
  [[nodiscard]] virtual InnerStep train_loss(StepIndex t, SampleShare share,
                                             const ParameterSource& source);

  /// Inner learning rate used in step t.
  [[nodiscard]] virtual double learning_rate(StepIndex t) const = 0;

  /// Settings of the inner optimizer, which must be AdamW, and its moments of parameter i:
  /// writable, at fixed addresses for the loop's lifetime, see read_moments. THROWS: ConfigError
  /// unless overridden, or when the inner optimizer is not AdamW. Needed by the methods that
  /// exchange momenta.
  [[nodiscard]] virtual AdamSettings adam_settings() const;
  [[nodiscard]] virtual AdamMoments adam_moments(std::size_t parameter);

  /// Forgets the inner optimizer's moments. THROWS: ConfigError unless overridden.
  virtual void reset_optimizer();

  /// Inner state that is not parameters: optimizer moments and counters. The defaults hold nothing.
  virtual void save(StateWriter& writer) const;
  virtual void load(StateReader& reader);
};

}  // namespace isthmus
