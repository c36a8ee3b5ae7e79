// SPDX-License-Identifier: Apache-2.0
// Access to gradients and Adam's moments of an inner loop that has them on a device in addition to
// its weights, for a method that performs the update there. Arrays are float32 values of all
// canonical elements in order, at fixed addresses for the loop's lifetime; work on them must be
// ordered with `stream()`. One thread, the loop's, on the loop's device; only between inner steps.
#pragma once

#include "kernels/cuda/resident_values.h"

namespace isthmus::cuda {

class ResidentAdam : public ResidentValues {
 public:
  /// The gradients of the last InnerLoop::gradients; writable. Valid until the next call of the
  /// loop.
  [[nodiscard]] virtual float* device_gradients() = 0;
  /// True: from now on InnerLoop::gradients leaves the gradients only on the device. Initially it
  /// also copies them to the host. While true, InnerLoop::gradient is out of date, and
  /// InnerLoop::apply_gradients must not be called.
  virtual void keep_gradients_on_device(bool keep) = 0;
  /// First (0) or second (1) moments, including all values that the host has written
  /// (InnerLoop::wrote_moments) once `stream()` has executed the copies. REQUIRES: AdamW.
  [[nodiscard]] virtual float* device_moment(int index) = 0;
  /// Called once work that writes moments has been queued: host copies of them
  /// (InnerLoop::read_moments) become invalid.
  virtual void wrote_device_moments() = 0;
};

}  // namespace isthmus::cuda
