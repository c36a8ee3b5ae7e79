// SPDX-License-Identifier: Apache-2.0
// Gradients and Adam's moments of an inner loop that has them on a device beside its weights, for a
// method that takes the update over there. Arrays are float32 of all canonical elements in their
// order, at addresses that stay for the loop's lifetime; work on them is in order with `stream()`.
// One thread, the loop's, on the loop's device; between inner steps only.
#pragma once

#include "kernels/cuda/resident_values.h"

namespace isthmus::cuda {

class ResidentAdam : public ResidentValues {
 public:
  /// What InnerLoop::gradients has computed last; writable. Good until the loop is asked for
  /// anything else.
  [[nodiscard]] virtual float* device_gradients() = 0;
  /// Whether InnerLoop::gradients leaves them on the device alone from now on; at first it copies
  /// them to the host too. While they stay, InnerLoop::gradient is out of date, and
  /// InnerLoop::apply_gradients is not to be called.
  virtual void keep_gradients_on_device(bool keep) = 0;
  /// First (0) or second (1) moments, with all that the host has written of them
  /// (InnerLoop::wrote_moments) once `stream()` has got so far. REQUIRES: AdamW.
  [[nodiscard]] virtual float* device_moment(int index) = 0;
  /// Called once work that writes moments has been queued: what the host saw of them
  /// (InnerLoop::read_moments) is to be asked for again.
  virtual void wrote_device_moments() = 0;
};

}  // namespace isthmus::cuda
