// SPDX-License-Identifier: Apache-2.0
// One layer of a model, for its architecture: residual stream in, residual stream out. A block
// holds only shapes; the caller passes weights, tables, kept activations and scratch, so one block
// serves all layers. One thread drives a block at a time.
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

/// A tensor of one layer: its name within the layer (without "model.layers.7."), in canonical
/// order.
struct LayerTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  TensorInit init;
};

class KeyValueCache;  // inner/model/key_value_cache.h

/// The threads and sizes of a pass: `sequences` windows of `length` tokens.
struct Pass {
  kernels::ThreadTeam& team;
  std::int64_t sequences = 0;
  std::int64_t length = 0;
  TensorGroup tensor = {};
  std::int64_t layer = 0;  // layer that a block computes, counted from the model's first
  /// (sequences, length): the index in its window of the first token of each token's document;
  /// null: each window is one document.
  const std::int32_t* document_starts = nullptr;
  /// Forward only: keys and values of the `before` tokens of the sequence that earlier passes took,
  /// to which the pass adds its own. Null: none are kept, and `before` is 0.
  KeyValueCache* cache = nullptr;
  std::int64_t before = 0;
  [[nodiscard]] std::int64_t rows() const { return sequences * length; }
  /// Position of row `row` in its document.
  [[nodiscard]] std::int64_t position(std::int64_t row) const {
    return before + row % length - (document_starts == nullptr ? 0 : document_starts[row]);
  }
  /// Rows of the residual stream that this rank holds.
  [[nodiscard]] std::int64_t own_rows() const { return tensor.own_rows(rows()); }
  [[nodiscard]] Pass at(std::int64_t of_layer) const {
    Pass pass = *this;
    pass.layer = of_layer;
    return pass;
  }
};

/// The pass over a batch whose sizes have been checked.
[[nodiscard]] inline Pass pass_over(kernels::ThreadTeam& team, const TokenBatch& batch,
                                    const TensorGroup& tensor = {}) {
  return {
      .team = team,
      .sequences = batch.sequences,
      .length = batch.length,
      .tensor = tensor,
      .document_starts = batch.document_starts.empty() ? nullptr : batch.document_starts.data()};
}

/// What a backward pass computes: all gradients, or first only those that other layers wait for
/// (zero bubble, arXiv:2401.10241 section 2).
enum class BackwardPart {
  kAll,
  kInput,  // gradients of input, norms and heads' norms; weights and biases of matrix products
           // follow later
};

template <typename Real>
struct LayerAdapters;  // inner/model/lora.h

/// Called, unless empty, when the gradients of a layer's upper half (ModelLayout::upper_half) are
/// final, while the rest of its backward pass follows.
using UpperHalfReady = std::function<void()>;

/// What a layer keeps of its forward pass for the backward pass.
enum class LayerKeeps {
  kAll,
  // Outputs of matrix products and of attention, and the norms' statistics. The backward pass
  // recomputes the outputs of norms and activation from them, elementwise. Not with a split
  // backward pass, in which gradients overwrite these inputs.
  kProducts,
};

/// A block of a tensor-parallel rank has that rank's heads and share of d_ff in its shape.
/// The residual stream, weights and their gradients are Real. What a layer keeps and its wide
/// gradients are stored as the block chooses: Real, or for float also Bf16.
template <typename Real>
class Block {
 public:
  virtual ~Block() = default;

  /// Values in the tables that depend on positions, for the longest pass; 0: no tables.
  [[nodiscard]] virtual std::int64_t table_values() const { return 0; }
  /// Fills `tables` (table_values()), which every pass then reads; borrowed. Called before the
  /// first pass.
  virtual void use_tables(Real* tables) { static_cast<void>(tables); }

  /// Adapters that the next calls add to the layer's matrix products; null: none. With adapters the
  /// layer's weights are frozen, and `backward` gets no gradients for them. Borrowed. REQUIRES:
  /// has_adapters().
  virtual void use_adapters(const LayerAdapters<Real>* adapters) { static_cast<void>(adapters); }
  [[nodiscard]] virtual bool has_adapters() const { return false; }

  /// Bytes of `memory` for a pass over `rows` rows, of which the rank holds `own` rows of the
  /// residual stream; and of `scratch` for the backward pass `part` and the forward pass before it.
  /// Both must be aligned to 64 bytes.
  [[nodiscard]] virtual std::int64_t memory_bytes(std::int64_t rows, std::int64_t own) const = 0;
  [[nodiscard]] virtual std::int64_t scratch_bytes(std::int64_t rows, BackwardPart part) const = 0;

  /// y = block(x); x, y (own rows, d_model). weights: the layer's tensors, concatenated. `memory`
  /// keeps what the backward pass reads; `scratch` holds nothing afterwards, and a block that keeps
  /// all needs none.
  virtual void forward(const Pass& pass, const Real* weights, const Real* x, void* memory,
                       void* scratch, Real* y) const = 0;
  /// d: on entry the gradient of y, on return that of x; `other`: more scratch, (own rows, d_model)
  /// Reals. gradients, laid out like weights, are added to; null: the weights are frozen. `memory`
  /// is invalid afterwards; after kInput it holds what `backward_weight` reads, and `upper_ready`
  /// is not called. REQUIRES: all ranks hold equally many rows.
  virtual void backward(const Pass& pass, BackwardPart part, const Real* weights, const Real* x,
                        void* memory, void* scratch, void* other, Real* d, Real* gradients,
                        const UpperHalfReady& upper_ready) const = 0;
  /// The gradients that `backward` with kInput left out, with the bits of kAll. d_output: the
  /// gradient of y. `memory` is invalid afterwards.
  virtual void backward_weight(const Pass& pass, void* memory, const Real* d_output,
                               Real* gradients) const = 0;
};

}  // namespace isthmus
