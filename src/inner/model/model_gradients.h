// SPDX-License-Identifier: Apache-2.0
// Destination of a pass's gradients other than one array in canonical order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus {

template <typename Real>
class Gradients {
 public:
  virtual ~Gradients() = default;
  /// Destination of the gradient of a tensor outside the layers; valid until that gradient is
  /// ready.
  [[nodiscard]] virtual Real* tensor(std::size_t index) = 0;
  /// Destination of a layer's gradients, concatenated; valid until they are ready.
  [[nodiscard]] virtual Real* layer(std::int64_t layer) = 0;
};

}  // namespace isthmus
