// SPDX-License-Identifier: Apache-2.0
// The weights that a forward or backward pass reads. One array in canonical order holds them, or an
// implementation makes them when they are asked for: gathered from ranks, or widened from narrow
// storage. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inner/model/model_layout.h"

namespace isthmus {

/// Matrices are row-major, as stored (model_layout.h). The pointers borrow from the object.
template <typename Real>
class Weights {
 public:
  virtual ~Weights() = default;
  /// Values of a tensor outside the layers; valid until `layer` is called.
  [[nodiscard]] virtual const Real* tensor(std::size_t index) = 0;
  /// Rows [first, first + count) of the matrix `tensor`, which is outside the layers; valid until
  /// the next call of any function. REQUIRES: by_rows().
  [[nodiscard]] virtual const Real* rows([[maybe_unused]] std::size_t tensor,
                                         [[maybe_unused]] std::int64_t first,
                                         [[maybe_unused]] std::int64_t count) {
    return nullptr;
  }
  /// True if a pass should read matrices outside the layers through `rows`, since the source would
  /// have to compute them whole. The results have the same bits.
  [[nodiscard]] virtual bool by_rows() const { return false; }
  /// Values of a layer's tensors, concatenated; valid until the next call of any function.
  [[nodiscard]] virtual const Real* layer(std::int64_t layer) = 0;
};

/// All weights in one array in canonical order, which is borrowed, as is `layout`.
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

}  // namespace isthmus
