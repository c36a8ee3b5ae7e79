// SPDX-License-Identifier: Apache-2.0
// Chosen by CMake when there is no CUDA.
#include <fmt/format.h>

#include "isthmus/errors.h"
#include "outer/parts/frozen_momentum.h"
#include "outer/parts/spsa_weights.h"
#include "outer/place/device_fragment.h"

namespace isthmus::outer {

FragmentMaker fragments_on_device(const FragmentedSettings&, std::span<const Parameter>,
                                  cuda::ResidentValues&, KeptIn) {
  throw SystemError(fmt::format("outer.placement = \"device\": {}", cuda::unavailable()));
}

std::unique_ptr<FrozenMomentum> frozen_momentum_on_device(const InnerLoop&, const Codec&,
                                                          std::size_t, cuda::ResidentAdam&) {
  throw SystemError(fmt::format("method 1bit-adam on a device: {}", cuda::unavailable()));
}

std::unique_ptr<SpsaWeights> spsa_weights_on_device(const InnerLoop&, std::uint64_t,
                                                    cuda::ResidentValues&) {
  throw SystemError(fmt::format("method spsa on a device: {}", cuda::unavailable()));
}

}  // namespace isthmus::outer
