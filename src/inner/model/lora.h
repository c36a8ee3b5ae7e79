// SPDX-License-Identifier: Apache-2.0
// Low-rank additions to the products of a layer (LoRA: Hu et al., arXiv:2106.09685, section 4.1):
//   y = x W^T + scale (x A^T) B^T,   A (r, in), B (out, r), scale = alpha / r.
// W is not trained: a pass computes gradients of A and B, and of x through both terms.
// Blocks call these functions beside their products; all memory is the caller's. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "inner/model/arena.h"
#include "inner/model/model_block.h"
#include "inner/model/model_layout.h"
#include "kernels/bf16.h"

namespace isthmus {

/// One product's adapter. A null `a`: the product has none.
template <typename Real>
struct Adapter {
  const Real* a = nullptr;  // (rank, in)
  const Real* b = nullptr;  // (out, rank)
  Real* d_a = nullptr;      // their gradients, accumulated; null: a pass without a backward part
  Real* d_b = nullptr;
  std::int64_t in = 0, out = 0;
};

/// Adapters of one layer, and scratch that their products share.
template <typename Real>
struct LayerAdapters {
  std::int64_t rank = 0;
  double scale = 1;
  std::array<Adapter<Real>, kLoraTargets> of = {};
  Real* inner = nullptr;              // (rows, rank)
  std::array<Real*, 3> d_inner = {};  // each (rows, rank)
  Real* tile = nullptr;  // (kAdapterTileRows, widest product); where activations are Bf16
  [[nodiscard]] const Adapter<Real>& operator[](LoraTarget target) const {
    return of[static_cast<std::size_t>(target)];
  }
};
inline constexpr std::int64_t kAdapterTileRows = 256;

/// y += scale (x A^T) B^T. x (rows, in) with rows ldx apart, y (rows, out) with rows ldy apart;
/// either may be Real or, for float, Bf16.
template <typename X, typename Y, typename Real>
void add_adapter(const Pass& pass, const LayerAdapters<Real>* layer, LoraTarget target, const X* x,
                 std::int64_t ldx, Y* y, std::int64_t ldy);

// The backward pass comes in two parts, since blocks put the gradient of x where x has been.

/// From dy, the gradient of y: d_a and d_b; x and y as above. What the second part needs stays in
/// the layer's scratch: of up to three products whose inputs are one.
template <typename X, typename Dy, typename Real>
void add_adapter_gradients(const Pass& pass, const LayerAdapters<Real>* layer, LoraTarget target,
                           const X* x, std::int64_t ldx, const Dy* dy, std::int64_t lddy);
/// dx += scale (dy B) A. dx (rows, in) with rows lddx apart.
template <typename Dx, typename Real>
void add_adapter_input_gradient(const Pass& pass, const LayerAdapters<Real>* layer,
                                LoraTarget target, Dx* dx, std::int64_t lddx);

/// The adapters of all layers of a model.
template <typename Real>
class Adapters {
 public:
  /// `layout`: the adapters' own (ModelLayout of a shape with lora.rank > 0), borrowed. rows: most
  /// of a pass. values, gradients: (layout.elements(),) in canonical order, borrowed; gradients may
  /// be null.
  Adapters(const ModelLayout& layout, std::int64_t rows, const Real* values, Real* gradients);

  /// Good until the next call.
  [[nodiscard]] const LayerAdapters<Real>& layer(std::int64_t layer);
  void read_from(const Real* values) { values_ = values; }
  [[nodiscard]] std::size_t held_bytes() const { return memory_.size() * sizeof(Real); }
  /// Values of scratch that such adapters hold.
  [[nodiscard]] static std::int64_t scratch_values(const ModelShape& shape, std::int64_t rows);

 private:
  const ModelLayout& layout_;
  const Real* values_;
  Real* gradients_;
  std::vector<Real> memory_;
  LayerAdapters<Real> current_;
};

}  // namespace isthmus
