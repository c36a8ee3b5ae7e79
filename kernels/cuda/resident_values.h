// SPDX-License-Identifier: Apache-2.0
// The master values of an inner loop that has them on a device, for who computes on them there
// instead of asking for copies on the host: a loop on a device is this beside being an InnerLoop.
// One thread, the loop's, on the loop's device; between inner steps only.
#pragma once

#include "isthmus/types.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// Somebody's own work that is to go on while the loop's step is computed: on streams of its own,
/// and on the host while the device has the step's work before it. All calls come from the loop's
/// thread, and none of them throws: what fails is kept and told elsewhere.
class BesideStep {
 public:
  virtual ~BesideStep() = default;
  /// The step's passes are queued, which read the weights; its update, which writes them, is not
  /// yet. RETURNS: whether weights have been written (ResidentValues::wrote_device_values): the
  /// loop then queues the passes again, and the step is as if they had been so before it.
  [[nodiscard]] virtual bool passes_are_queued() noexcept = 0;
  /// All of the step is queued. The loop waits for it afterwards.
  virtual void step_is_queued(StepIndex t) noexcept = 0;
  /// Between two steps somebody asks for the loop's values or state, or changes them: what is on
  /// its way and would change either has to be done now.
  virtual void values_are_asked_for() noexcept = 0;
};

/// What a ParameterSource is besides, whose values are made up on the device. Such a loop asks for
/// them here and not for those on the host, which it need not have.
class DeviceSource {
 public:
  virtual ~DeviceSource() = default;
  /// Queues: out[0, elements.size()) := its values of these canonical elements. out: on the device,
  /// not the loop's own values.
  virtual void fill(Stream& stream, CanonicalRange elements, float* out) const = 0;
};

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
  /// `beside` is told of every train_step from now on, until another one is named, or null.
  /// RETURNS: whether it will be: false for a loop whose steps are not queued as a whole.
  [[nodiscard]] virtual bool go_beside(BesideStep* beside) = 0;
};

}  // namespace isthmus::cuda
