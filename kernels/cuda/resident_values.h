// SPDX-License-Identifier: Apache-2.0
// Access to the master values of an inner loop on a device, for code that computes on them there
// without copies on the host; a loop on a device implements this in addition to InnerLoop. One
// thread, the loop's, on the loop's device; only between inner steps.
#pragma once

#include "isthmus/types.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// Hooks for work of other code that overlaps the loop's step: on separate streams, and on the host
/// while the device executes the step. All calls come from the loop's thread. None of them throws:
/// implementations keep errors and report them elsewhere.
class OverlapHooks {
 public:
  virtual ~OverlapHooks() = default;
  /// Called when the step's passes, which read the weights, are queued, and its update, which
  /// writes them, is not yet. RETURNS: true if weights were written
  /// (ResidentValues::wrote_device_values). The loop then queues the passes again, and the step is
  /// as if the write had come before it.
  [[nodiscard]] virtual bool passes_are_queued() noexcept = 0;
  /// Called when all of the step is queued. The loop waits for the step afterwards.
  virtual void step_is_queued(StepIndex t) noexcept = 0;
  /// Called between two steps before the loop's values or state are read or changed: pending work
  /// that would change either must be completed now.
  virtual void values_are_asked_for() noexcept = 0;
};

/// Additional interface of a ParameterSource that computes its values on the device. A loop on a
/// device reads it instead of host values, which the source then need not have.
class DeviceSource {
 public:
  virtual ~DeviceSource() = default;
  /// Queues: out[0, elements.size()) := the source's values of these canonical elements. out: on
  /// the device, not the loop's own values.
  virtual void fill(Stream& stream, CanonicalRange elements, float* out) const = 0;
};

class ResidentValues {
 public:
  virtual ~ResidentValues() = default;
  /// float32 values of all canonical elements in order, in device memory; the address is fixed for
  /// the loop's lifetime. Work on `stream()` reads and writes them.
  [[nodiscard]] virtual float* device_values() = 0;
  /// The stream of the loop's own work.
  [[nodiscard]] virtual Stream& stream() = 0;
  /// Called once work that writes these elements has been queued: the loop continues from the
  /// written values, and host copies of them (InnerLoop::read_values) become invalid.
  virtual void wrote_device_values(CanonicalRange elements) = 0;
  /// Sets the hooks that every train_step calls from now on; null: none. RETURNS: false for a loop
  /// whose steps are not queued as a whole, which calls no hooks.
  [[nodiscard]] virtual bool go_beside(OverlapHooks* beside) = 0;
};

}  // namespace isthmus::cuda
