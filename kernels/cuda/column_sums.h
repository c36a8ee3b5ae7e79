// SPDX-License-Identifier: Apache-2.0
// The end of sums over rows that many blocks have begun: no atomics, one order.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// sum (columns,) += the column sums of partial (parts, columns), whose rows lie `ld` floats apart.
/// DETERMINISM: in an order that depends on `parts` alone.
void add_partial_sums(Stream& stream, std::int64_t parts, std::int64_t columns, std::int64_t ld,
                      const float* partial, float* sum);

}  // namespace isthmus::cuda
