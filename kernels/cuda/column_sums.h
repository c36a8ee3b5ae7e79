// SPDX-License-Identifier: Apache-2.0
// The last stage of sums over rows that many blocks have begun: no atomics, a fixed order.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// sum (columns,) += the column sums of partial (parts, columns), whose rows are `ld` floats apart.
/// DETERMINISM: the order depends only on `parts`.
void add_partial_sums(Stream& stream, std::int64_t parts, std::int64_t columns, std::int64_t ld,
                      const float* partial, float* sum);

}  // namespace isthmus::cuda
