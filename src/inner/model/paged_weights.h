// SPDX-License-Identifier: Apache-2.0
// Weights that may be in files (core/state/state_memory.h), for a pass of a model on one rank. When
// the pass requests a layer, the weights (and in the backward pass gradients) of the next layer are
// announced and those of the previous one released. Two layers, and the head while it computes, are
// in memory at any time. If nothing is in files it only forwards calls. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/state/state_memory.h"
#include "inner/model/model.h"
#include "inner/model/model_layout.h"
#include "inner/model/model_weights.h"

namespace isthmus {

class PagedWeights final : public Weights<float> {
 public:
  /// Address of a tensor's values.
  using Place = std::function<std::span<const float>(std::size_t tensor)>;

  /// Borrows weights and layout. gradients: (elements,) if a backward pass follows, else empty.
  PagedWeights(Weights<float>& weights, const ModelLayout& layout, Place place,
               std::span<const float> gradients = {});

  /// Begins a part of the pass; a pass without backward has kForward and kEnd.
  void begin(PassPart part);

  [[nodiscard]] const float* tensor(std::size_t index) override;
  [[nodiscard]] const float* rows(std::size_t index, std::int64_t first,
                                  std::int64_t count) override {
    return weights_.rows(index, first, count);
  }
  [[nodiscard]] bool by_rows() const override { return weights_.by_rows(); }
  [[nodiscard]] const float* layer(std::int64_t layer) override;

 private:
  using Hint = std::function<void(std::span<const float> values, StateUse use)>;
  /// Calls `hint` for the ranges of the tensors [first, end): values, and gradients if requested.
  void each(std::size_t first, std::size_t end, bool values, bool gradients, const Hint& hint);
  void each_of_layer(std::int64_t layer, const Hint& hint);
  void need(std::int64_t layer);
  void leave_layer();

  Weights<float>& weights_;
  const ModelLayout& layout_;
  Place place_;
  std::span<const float> gradients_;
  bool in_files_;
  bool backward_ = false;
  std::int64_t current_ = -1;  // the layer in use; -1: none
};

}  // namespace isthmus
