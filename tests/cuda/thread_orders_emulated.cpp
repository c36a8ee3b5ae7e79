// SPDX-License-Identifier: Apache-2.0
#include "cuda/emulated/simt.h"
#include "cuda/thread_orders.h"

namespace isthmus::cuda {

std::vector<std::uint64_t> thread_orders() { return {0, 1, 2, 3}; }
void use_thread_order(std::uint64_t order) { emulated::set_thread_order(order); }

}  // namespace isthmus::cuda
