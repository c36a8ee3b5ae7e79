// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters of a layer's matrix products (LoRA: Hu et al., arXiv:2106.09685, section 4.1):
//   y = x W^T + scale (x A^T) B^T,   A (r, in), B (out, r), scale = alpha / r.
// W is not trained: a pass computes gradients of A and B, and of x through both terms.
// Blocks call these functions in addition to their products; the caller owns all memory. One
// thread.
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

/// The adapter of one matrix product. Null `a`: the product has none.
template <typename Real>
struct Adapter {
  const Real* a = nullptr;  // (rank, in)
  const Real* b = nullptr;  // (out, rank)
  Real* d_a = nullptr;      // gradients, added to; null: no backward pass
  Real* d_b = nullptr;
  std::int64_t in = 0, out = 0;
};

/// The adapters of one layer, and scratch that its products share.
template <typename Real>
struct LayerAdapters {
  std::int64_t rank = 0;
  double scale = 1;
  std::array<Adapter<Real>, kLoraTargets> of = {};
  Real* inner = nullptr;              // (rows, rank)
  std::array<Real*, 3> d_inner = {};  // each (rows, rank)
  Real* tile = nullptr;               // (kAdapterTileRows, widest product); if activations are Bf16
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

// The backward pass has two parts, since blocks store the gradient of x over x.

/// Adds to d_a and d_b from dy, the gradient of y; x and y as above. Data for the second part stay
/// in the layer's scratch, for up to three products with the same input.
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
  /// `layout`: the adapters' layout (ModelLayout of a shape with lora.rank > 0), borrowed. rows:
  /// largest number of rows of a pass. values, gradients: (layout.elements(),) in canonical order,
  /// borrowed; gradients may be null.
  Adapters(const ModelLayout& layout, std::int64_t rows, const Real* values, Real* gradients);

  /// Valid until the next call.
  [[nodiscard]] const LayerAdapters<Real>& layer(std::int64_t layer);
  void read_from(const Real* values) { values_ = values; }
  [[nodiscard]] std::size_t held_bytes() const { return memory_.size() * sizeof(Real); }
  /// Number of scratch values of such adapters.
  [[nodiscard]] static std::int64_t scratch_values(const ModelShape& shape, std::int64_t rows);

 private:
  const ModelLayout& layout_;
  const Real* values_;
  Real* gradients_;
  std::vector<Real> memory_;
  LayerAdapters<Real> current_;
};

}  // namespace isthmus
