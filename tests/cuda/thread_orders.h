// SPDX-License-Identifier: Apache-2.0
// Orders in which blocks and their threads run, and in which streams work: what is computed must
// not depend on them.
#pragma once

#include <cstdint>
#include <vector>

namespace isthmus::cuda {

/// 0 and some seeds on the emulated device; on a real one 0 twice, whose order is the device's.
[[nodiscard]] std::vector<std::uint64_t> thread_orders();
void use_thread_order(std::uint64_t order);

/// 0: streams that are made from now on work as late as they may. On the emulated device also some
/// in which they work as early as they may, all of them or all but one.
[[nodiscard]] std::vector<int> stream_orders();
void use_stream_order(int order);

}  // namespace isthmus::cuda
