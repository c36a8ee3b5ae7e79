// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding on the device, in the form of kernels/rotary.h. T: float or Bf16.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// Rotates `heads` adjacent heads in place, rows `row` apart; the position of row r is r mod seq.
/// cosine, sine (seq, head_dim / 2). backward: by the negative angle. Device memory.
template <typename T>
void rotate(Stream& stream, bool backward, std::int64_t rows, std::int64_t seq, std::int64_t heads,
            std::int64_t head_dim, std::int64_t row, T* x, const float* cosine, const float* sine);

}  // namespace isthmus::cuda
