// SPDX-License-Identifier: Apache-2.0
// Where a pass adds its gradients when not to one array in canonical order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus {

template <typename Real>
class Gradients {
 public:
  virtual ~Gradients() = default;
  /// Where the gradient of a tensor outside the layers is added; good until it is ready.
  [[nodiscard]] virtual Real* tensor(std::size_t index) = 0;
  /// Where those of a layer's tensors are added, one after another; good until they are ready.
  [[nodiscard]] virtual Real* layer(std::int64_t layer) = 0;
};

}  // namespace isthmus
