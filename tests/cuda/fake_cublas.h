// SPDX-License-Identifier: Apache-2.0
// What tests can do to the cuBLASLt that computes on the CPU.
#pragma once

#include <vector>

namespace isthmus::cuda::fake {

/// So many algorithms are named for each product, by the same bits all of them.
inline constexpr int kAlgorithms = 4;
/// From now on the library refuses to run this one; -1: none.
void refuse_algorithm(int index);
/// Those of the products that were queued since this was asked last.
[[nodiscard]] std::vector<int> take_used_algorithms();

}  // namespace isthmus::cuda::fake
