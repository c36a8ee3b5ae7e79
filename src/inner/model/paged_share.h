// SPDX-License-Identifier: Apache-2.0
// A rank's flat weights and gradients as its passes walk through them, where they lie in files
// (core/state/state_memory.h): the next layer is asked for as one is used, the last one given back.
// Where they are in memory it is flat weights and nothing else. One thread, that of the rank.
#pragma once

#include <cstdint>
#include <span>

#include "core/state/state_memory.h"
#include "inner/model/model_layout.h"
#include "inner/model/model_weights.h"

namespace isthmus {

class PagedShare final : public Weights<float> {
 public:
  /// Borrows all. weights: (elements,). own: nobody else reads them, so what has been used can go.
  /// gradients: (elements,), or empty where they are not flat.
  PagedShare(const ModelLayout& layout, const float* weights, bool own,
             std::span<const float> gradients);

  /// A pass over the layers begins.
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
