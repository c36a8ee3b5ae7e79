// SPDX-License-Identifier: Apache-2.0
// Orders in which a block's threads run: what a kernel computes must not depend on them.
#pragma once

#include <cstdint>
#include <vector>

namespace isthmus::cuda {

/// 0 and some seeds on the emulated device; on a real one 0 twice, whose order is the device's.
[[nodiscard]] std::vector<std::uint64_t> thread_orders();
void use_thread_order(std::uint64_t order);

}  // namespace isthmus::cuda
