// SPDX-License-Identifier: Apache-2.0
// Weights of a pass read from a ParameterSource, one layer at a time: directly if a layer's tensors
// are contiguous in the source, else through a copy of that layer.
#pragma once

#include <cstdint>
#include <vector>

#include "inner/model/model.h"

namespace isthmus {

class SourceWeights final : public Weights<float> {
 public:
  /// Borrows both arguments.
  SourceWeights(const ModelLayout& layout, const ParameterSource& source)
      : layout_(layout), source_(source) {}

  [[nodiscard]] const float* tensor(std::size_t index) override;
  [[nodiscard]] const float* rows(std::size_t index, std::int64_t first,
                                  std::int64_t count) override;
  [[nodiscard]] bool by_rows() const override { return source_.by_rows(); }
  [[nodiscard]] const float* layer(std::int64_t layer) override;

 private:
  const ModelLayout& layout_;
  const ParameterSource& source_;
  std::vector<float> copy_;  // of one layer; allocated at first use
};

}  // namespace isthmus
