// SPDX-License-Identifier: Apache-2.0
// Access of a rank's passes to its flat weights and gradients when these are in files
// (core/state/state_memory.h): announces the next layer while one is used, and releases the
// previous one. If they are in memory it only returns them. One thread, that of the rank.
#pragma once

#include <cstdint>
#include <span>

#include "core/state/state_memory.h"
#include "inner/model/model_layout.h"
#include "inner/model/model_weights.h"

namespace isthmus {

class PagedShare final : public Weights<float> {
 public:
  /// Borrows all arguments. weights: (elements,). own: only this rank reads them, so used values
  /// may be released. gradients: (elements,), or empty if they are not flat.
  PagedShare(const ModelLayout& layout, const float* weights, bool own,
             std::span<const float> gradients);

  /// Begins a pass over the layers.
  void forward() { begin(false); }
  void backward() { begin(true); }

  [[nodiscard]] const float* tensor(std::size_t index) override {
    return weights_ + layout_.tensors()[index].elements.begin;
  }
  [[nodiscard]] const float* layer(std::int64_t layer) override;

 private:
  using Hint = void (*)(std::span<const float> values, StateUse use);
  void begin(bool backward);
  void each_of(std::int64_t layer, Hint hint) const;

  const ModelLayout& layout_;
  const float* weights_;
  bool own_;
  std::span<const float> gradients_;
  bool backward_ = false;
  std::int64_t current_ = -1;  // the layer in use; -1: none
};

}  // namespace isthmus
