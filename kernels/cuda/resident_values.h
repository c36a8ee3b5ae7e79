// SPDX-License-Identifier: Apache-2.0
// The master values of an inner loop that has them on a device, for who computes on them there
// instead of asking for copies on the host: a loop on a device is this beside being an InnerLoop.
// One thread, the loop's, on the loop's device; between inner steps only.
#pragma once

#include "isthmus/types.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

class ResidentValues {
 public:
  virtual ~ResidentValues() = default;
  /// float32 of all canonical elements in their order, in device memory; the address stays for the
  /// loop's lifetime. They are read and written by work on `stream()`.
  [[nodiscard]] virtual float* device_values() = 0;
  /// On which the loop's own work is queued.
  [[nodiscard]] virtual Stream& stream() = 0;
  /// Called once work that writes these elements has been queued: the loop goes on from them, and
  /// what the host saw of them (InnerLoop::read_values) is to be asked for again.
  virtual void wrote_device_values(CanonicalRange elements) = 0;
};

}  // namespace isthmus::cuda
