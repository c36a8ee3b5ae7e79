// SPDX-License-Identifier: Apache-2.0
// One layer of a model as its architecture computes it: residual stream in, residual stream out.
// Blocks hold shapes only; weights, tables, kept activations and scratch are handed in, so one
// block serves all layers. One thread drives a block at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inner/model/model_layout.h"
#include "inner/model/tensor_parallel.h"
#include "isthmus/inner_loop.h"
#include "kernels/thread_team.h"

namespace isthmus {

/// A tensor of one layer: its name after "model.layers.7.", in canonical order.
struct LayerTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  TensorInit init;
};

/// Who computes and on how much: `sequences` windows of `length` tokens.
struct Pass {
  kernels::ThreadTeam& team;
  std::int64_t sequences = 0;
  std::int64_t length = 0;
  TensorGroup tensor = {};
  std::int64_t layer = 0;  // which one a block computes, counted from the model's first
  /// (sequences, length): the first row of each row's document; null: one document a sequence.
  const std::int32_t* document_starts = nullptr;
  [[nodiscard]] std::int64_t rows() const { return sequences * length; }
  /// Of row `row`, in its document.
  [[nodiscard]] std::int64_t position(std::int64_t row) const {
    return row % length - (document_starts == nullptr ? 0 : document_starts[row]);
  }
  /// Of these, rows of the residual stream that the rank holds.
  [[nodiscard]] std::int64_t own_rows() const { return tensor.own_rows(rows()); }
  [[nodiscard]] Pass at(std::int64_t of_layer) const {
    Pass pass = *this;
    pass.layer = of_layer;
    return pass;
  }
};

/// The pass over a batch whose sizes are right.
[[nodiscard]] inline Pass pass_over(kernels::ThreadTeam& team, const TokenBatch& batch,
                                    const TensorGroup& tensor = {}) {
  return {
      .team = team,
      .sequences = batch.sequences,
      .length = batch.length,
      .tensor = tensor,
      .document_starts = batch.document_starts.empty() ? nullptr : batch.document_starts.data()};
}

/// What a backward pass computes: all gradients at once, or first those that other layers wait for
/// (zero bubble, arXiv:2401.10241 section 2).
enum class BackwardPart {
  kAll,
  kInput,  // gradients of the input, norms and heads' norms; the products' weights and biases wait
};

template <typename Real>
struct LayerAdapters;  // inner/model/lora.h

/// Called, if there is one, when the gradients of a layer's upper half (ModelLayout::upper_half)
/// are final while the rest of its backward pass is to come.
using UpperHalfReady = std::function<void()>;

/// What a layer keeps of its forward pass for its backward pass.
enum class LayerKeeps {
  kAll,
  // Outputs of products and of attention, and the norms' statistics: from these the norms' outputs
  // and the activation's are made again, value by value. Not for a split backward pass, which finds
  // gradients in the place of what they are made from.
  kProducts,
};

/// A block of a tensor-parallel rank has that rank's heads and share of d_ff in its shape.
/// The residual stream, weights and their gradients are Real. What a layer keeps and its wide
/// gradients are stored as the block chooses: Real, or for float also Bf16.
template <typename Real>
class Block {
 public:
  virtual ~Block() = default;

  /// Values of the tables that depend on positions, of as many positions as passes are long; 0
  /// where there are none.
  [[nodiscard]] virtual std::int64_t table_values() const { return 0; }
  /// Fills `tables` (table_values()) and reads them in every pass; borrowed. Before the first pass.
  virtual void use_tables(Real* tables) { static_cast<void>(tables); }

  /// Adapters that the next calls add to the layer's products; null: none. With adapters the
  /// layer's own weights are frozen, and `backward` is given no gradients for them. Borrowed.
  /// REQUIRES: a block that has_adapters().
  virtual void use_adapters(const LayerAdapters<Real>* adapters) { static_cast<void>(adapters); }
  [[nodiscard]] virtual bool has_adapters() const { return false; }

  /// Bytes of `memory` that a pass over so many rows needs, of which `own` are the rank's of the
  /// residual stream, and of `scratch` in that backward pass and the forward pass before it; both
  /// are aligned to 64 bytes.
  [[nodiscard]] virtual std::int64_t memory_bytes(std::int64_t rows, std::int64_t own) const = 0;
  [[nodiscard]] virtual std::int64_t scratch_bytes(std::int64_t rows, BackwardPart part) const = 0;

  /// y = block(x); x, y (own rows, d_model). weights: the layer's tensors one after another.
  /// `memory` keeps what the backward pass reads; of `scratch`, which a block that keeps all does
  /// without, nothing is read later.
  virtual void forward(const Pass& pass, const Real* weights, const Real* x, void* memory,
                       void* scratch, Real* y) const = 0;
  /// d: on entry the gradient of y, on return that of x; `other` is more scratch, own rows d_model
  /// Reals. gradients, laid out like weights, are accumulated; null: the weights are frozen.
  /// `memory` is spent afterwards; after kInput it holds what `backward_weight` reads, and nobody
  /// is told of a half. REQUIRES: the ranks hold equally many rows.
  virtual void backward(const Pass& pass, BackwardPart part, const Real* weights, const Real* x,
                        void* memory, void* scratch, void* other, Real* d, Real* gradients,
                        const UpperHalfReady& upper_ready) const = 0;
  /// What `backward` of kInput left out, with the bits of kAll. d_output: the gradient of y.
  /// `memory` is spent afterwards.
  virtual void backward_weight(const Pass& pass, void* memory, const Real* d_output,
                               Real* gradients) const = 0;
};

}  // namespace isthmus
