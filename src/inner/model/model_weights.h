// SPDX-License-Identifier: Apache-2.0
// Where a pass reads its weights: one array in canonical order, or somebody's own way of holding
// them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inner/model/model_layout.h"

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

}  // namespace isthmus
