// SPDX-License-Identifier: Apache-2.0
// Shared-randomness SPSA on the device, with the bits of kernels/spsa.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/device.h"
#include "kernels/spsa.h"

namespace isthmus::cuda {

/// out = w + eps z for elements first .. first + n of the canonical layout. w, out: (n,) float32 on
/// the device, not overlapping; 0 <= first, first + n <= 2^47. Memory: 8 bytes an element.
void spsa_perturb(Stream& stream, std::uint64_t run_key, const kernels::SpsaDirection& z, float eps,
                  std::int64_t first, std::size_t n, const float* w, float* out);

/// Steps of a log in device memory, which can be applied to any number of spans.
class SpsaSteps {
 public:
  /// Starts without steps.
  SpsaSteps() = default;
  SpsaSteps(Stream& stream, std::span<const kernels::SpsaStep> steps) { put(stream, steps); }
  /// Replaces the steps; memory grows if needed. Blocks until they are copied. They must not be
  /// replaced again before work queued with them on `stream` has been executed. REQUIRES: entries
  /// as for kernels::spsa_apply.
  void put(Stream& stream, std::span<const kernels::SpsaStep> steps);

  struct Step {
    std::uint32_t step = 0;
    std::uint32_t entries = 0;
    std::uint64_t first_entry = 0;
    std::uint64_t total = 0;  // of all d, modulo 2^64
    float c = 0;
    float decay = 1;
  };
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] const Step* steps() const { return steps_.data(); }
  [[nodiscard]] const kernels::SpsaEntry* entries() const { return entries_.data(); }

 private:
  DeviceArray<Step> steps_;
  DeviceArray<kernels::SpsaEntry> entries_;
  std::size_t count_ = 0;
};

/// Applies the steps in order to elements first .. first + n. w: (n,) float32 on the device. One
/// pass over w for any number of steps: 8 bytes an element of memory traffic.
void spsa_apply(Stream& stream, std::uint64_t run_key, const SpsaSteps& steps, std::int64_t first,
                std::size_t n, float* w);

}  // namespace isthmus::cuda
