// SPDX-License-Identifier: Apache-2.0
// Operations of method spsa on the weights, on the host or on the device that has them, with the
// same bits. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "isthmus/inner_loop.h"
#include "kernels/cuda/resident_values.h"
#include "kernels/spsa.h"
#include "outer/parts/spsa_log.h"

namespace isthmus::outer {

class SpsaWeights {
 public:
  virtual ~SpsaWeights() = default;
  /// The weights plus eps * z; valid until the next call of any function here.
  [[nodiscard]] virtual const ParameterSource& perturbed(const kernels::SpsaDirection& z,
                                                         float eps) = 0;
  /// Applies the record to all weights.
  virtual void apply(const SpsaLogHeader& header, const SpsaRecord& record) = 0;
  /// Bytes of perturbed copies in use, on the host.
  [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;
};

[[nodiscard]] std::unique_ptr<SpsaWeights> spsa_weights_on_host(InnerLoop& inner,
                                                                std::uint64_t run_key, int threads);

/// `values`: the master values of `inner`; both borrowed. Only a step's entries are copied to the
/// device. THROWS: SystemError without a device.
[[nodiscard]] std::unique_ptr<SpsaWeights> spsa_weights_on_device(const InnerLoop& inner,
                                                                  std::uint64_t run_key,
                                                                  cuda::ResidentValues& values);

}  // namespace isthmus::outer
