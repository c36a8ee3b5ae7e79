// SPDX-License-Identifier: Apache-2.0
// Matrix products of a CUDA device, apart from a model.
#pragma once

#include <string>

#include "isthmus/runtime.h"

namespace isthmus {

/// Operations a second of a large square matrix product on the calling thread's CUDA device, of
/// bfloat16 or float with sums in float: the best of some. THROWS: SystemError, OutOfDeviceMemory.
[[nodiscard]] double device_product_flops(bool bf16, const Clock& clock);

/// Why devices compute no products: there is none, or cuBLASLt is not found; empty when they do.
/// Takes nothing of a device's memory.
[[nodiscard]] std::string device_products_missing();

/// The version of cuBLASLt that computes them. THROWS: SystemError where nothing does.
[[nodiscard]] std::string device_products_version();

}  // namespace isthmus
