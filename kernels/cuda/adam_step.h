// SPDX-License-Identifier: Apache-2.0
// Operations of 1-bit Adam on flat arrays after the freeze of the variance
// (src/outer/methods/one_bit_adam.h), on the device with the CPU's bits. The elements with a
// variance are parts of a model's flat arrays; concatenated they are the vector that is sent. All
// pointers are device memory, not overlapping.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/adam_step_math.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/optimizer.h"

namespace isthmus::cuda {

/// A contiguous run of elements: begin .. begin + n - 1 of the flat arrays, which are values at ..
/// at + n - 1 of the vector.
struct LaneRun {
  std::int64_t begin = 0, at = 0, n = 0;
};
/// `runs` cut into parts of at most 16384 values, one per thread block.
[[nodiscard]] std::vector<LaneRun> parts_of(std::span<const LaneRun> runs);
/// The same in device memory.
struct LaneParts {
  const LaneRun* data = nullptr;
  std::int64_t count = 0;
};

/// vector = kernels::own_momentum of each element. 12 bytes an element.
void gather_momentum(Stream& stream, const LaneParts& parts, float keep, const float* first,
                     float own, const float* gradients, float* vector);
/// First moments of the elements := vector. 8 bytes an element.
void scatter_momentum(Stream& stream, const LaneParts& parts, const float* vector, float* first);
/// kernels::adam_step_element for all elements of `parts`, with weight decay for parts that have
/// it. 16 bytes an element.
void adam_step(Stream& stream, const kernels::AdamStep& step, const ParameterParts& parts,
               float* values, const float* first, const float* second);

}  // namespace isthmus::cuda
