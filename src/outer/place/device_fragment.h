// SPDX-License-Identifier: Apache-2.0
// Fragments in the memory of the device that computes the inner loop. Delta, its norm, its encoding
// with error feedback, the outer step and the merge are work on the loop's stream, so the weights
// stay where they are. What leaves the device is the encoded contribution, its norm, and the tiles
// of its sample (outer/parts/contribution_sample.h: all up to 63, one in 64 of a long vector); the
// mean comes from the exchange as fp32. Checkpoints and evaluations fetch the whole. Memory on the
// device: as FragmentState on the host, with the kept residual all the time, and what is shared by
// a worker's fragments: 4 bytes an element of the largest and its encoding. On the host: pinned,
// the largest encoding, its norms and sample; else, the anchors (4 bytes) once somebody has asked
// for them.
#pragma once

#include "isthmus/inner_loop.h"
#include "kernels/cuda/resident_values.h"
#include "outer/parts/outer_fragment.h"
#include "outer/place/device_places.h"

namespace isthmus::outer {

struct FragmentedSettings;

/// As the settings say, of parameters whose master values are `values`. Borrows both for the life
/// of what it makes.
/// THROWS: ConfigError for a codec without kernels; SystemError where there is no device;
/// cuda::OutOfDeviceMemory, as do the fragments it makes.
[[nodiscard]] FragmentMaker fragments_on_device(const FragmentedSettings& settings,
                                                std::span<const Parameter> parameters,
                                                cuda::ResidentValues& values, KeptIn kept);

}  // namespace isthmus::outer
