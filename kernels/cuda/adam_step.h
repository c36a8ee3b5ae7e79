// SPDX-License-Identifier: Apache-2.0
// What 1-bit Adam does to flat arrays under its frozen variance (src/outer/methods/one_bit_adam.h),
// on the device and with the CPU's bits. Lanes with a variance are parts of the flat arrays of a
// model; end to end they are the vector that is sent. All pointers are the device's, not
// overlapping.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/adam_step_math.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/optimizer.h"

namespace isthmus::cuda {

/// Neighbouring lanes: elements begin .. begin + n - 1 of the flat arrays, which are values at ..
/// at + n - 1 of a vector.
struct LaneRun {
  std::int64_t begin = 0, at = 0, n = 0;
};
/// `runs` cut into parts of 16384 values at most, of which a kernel's blocks take one each.
[[nodiscard]] std::vector<LaneRun> parts_of(std::span<const LaneRun> runs);
/// The same in the device's memory.
struct LaneParts {
  const LaneRun* data = nullptr;
  std::int64_t count = 0;
};

/// vector = kernels::own_momentum of each lane. 12 bytes a lane.
void gather_momentum(Stream& stream, const LaneParts& parts, float keep, const float* first,
                     float own, const float* gradients, float* vector);
/// First moments of the lanes := vector. 8 bytes a lane.
void scatter_momentum(Stream& stream, const LaneParts& parts, const float* vector, float* first);
/// kernels::adam_step_element of all elements of `parts`, with weight decay where a part has any.
/// 16 bytes an element.
void adam_step(Stream& stream, const kernels::AdamStep& step, const ParameterParts& parts,
               float* values, const float* first, const float* second);

}  // namespace isthmus::cuda
