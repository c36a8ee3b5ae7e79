// SPDX-License-Identifier: Apache-2.0
// Fragments in the memory of the device that computes the inner loop. Delta, its norm, its encoding
// with error feedback, the outer step and the merge are device work, so the weights are not copied.
// Copied to the host are the encoded contribution, its norm, and the tiles of its sample
// (outer/parts/contribution_sample.h: all up to 63, one in 64 of a long vector); the exchange
// returns the mean as fp32. Checkpoints and evaluations copy everything. Device memory: as
// FragmentState on the host, the saved residual at all times, and shared by a worker's fragments 4
// bytes an element of the largest and its encoding. Host memory: pinned, the largest encoding, its
// norms and sample; unpinned, the anchors (4 bytes an element) once anchor() was called.
#pragma once

#include "isthmus/inner_loop.h"
#include "kernels/cuda/resident_values.h"
#include "outer/parts/outer_fragment.h"
#include "outer/place/device_places.h"

namespace isthmus::outer {

struct FragmentedSettings;

/// A maker of fragments with these settings, for parameters with the master values `values`.
/// Borrows `parameters` and `values` for the lifetime of the fragments. THROWS: ConfigError for a
/// codec without kernels; SystemError without a device; cuda::OutOfDeviceMemory, as do the
/// fragments.
[[nodiscard]] FragmentMaker fragments_on_device(const FragmentedSettings& settings,
                                                std::span<const Parameter> parameters,
                                                cuda::ResidentValues& values, KeptIn kept);

}  // namespace isthmus::outer
