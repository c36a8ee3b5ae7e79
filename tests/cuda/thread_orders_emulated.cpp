// SPDX-License-Identifier: Apache-2.0
#include "cuda/emulated/runtime.h"
#include "cuda/emulated/simt.h"
#include "cuda/thread_orders.h"

namespace isthmus::cuda {

std::vector<std::uint64_t> thread_orders() { return {0, 1, 2, 3}; }
void use_thread_order(std::uint64_t order) { emulated::set_thread_order(order); }

// 1: all early; from 2 on all but one, by the number in which they are made.
std::vector<int> stream_orders() { return {0, 1, 2, 3}; }
void use_stream_order(int order) {
  if (order == 0) return emulated::set_streams_late();
  emulated::set_streams_early(order - 2);
}

}  // namespace isthmus::cuda
