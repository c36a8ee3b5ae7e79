// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/device_product.h"
#include "isthmus/errors.h"
#include "kernels/cuda/device.h"

namespace isthmus {

double device_product_flops(bool, const Clock&) {
  throw SystemError("CUDA: " + cuda::unavailable());
}

std::string device_products_missing() { return cuda::unavailable(); }

std::string device_products_version() { throw SystemError("CUDA: " + cuda::unavailable()); }

}  // namespace isthmus
