// SPDX-License-Identifier: Apache-2.0
// Destination of a pass's gradients other than one array in canonical order. A pass adds its
// gradients to what is there, as with one array; the object fills new memory with zeros.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus {

template <typename Real>
class Gradients {
 public:
  virtual ~Gradients() = default;
  /// Destination of the gradient of a tensor outside the layers; valid until that gradient is ready
  /// (BackwardOptions::on_ready). May block: ReducedGradients waits for the reduction whose memory
  /// it needs again.
  [[nodiscard]] virtual Real* tensor(std::size_t index) = 0;
  /// The same for a layer's gradients, concatenated.
  [[nodiscard]] virtual Real* layer(std::int64_t layer) = 0;
};

}  // namespace isthmus
