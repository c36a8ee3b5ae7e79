// SPDX-License-Identifier: Apache-2.0
// Matrix products of a CUDA device, apart from a model.
#pragma once

#include <string>

#include "isthmus/runtime.h"

namespace isthmus {

/// Operations per second of a large square matrix product on the calling thread's CUDA device, of
/// bfloat16 or float with float accumulation: the best of several. THROWS: SystemError,
/// OutOfDeviceMemory.
[[nodiscard]] double device_product_flops(bool bf16, const Clock& clock);

/// Why no device can compute matrix products: there is no device, or cuBLASLt is not found; empty
/// if one can. Uses no device memory.
[[nodiscard]] std::string device_products_missing();

/// The version of cuBLASLt. THROWS: SystemError when there is none.
[[nodiscard]] std::string device_products_version();

}  // namespace isthmus
