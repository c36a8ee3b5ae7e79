// SPDX-License-Identifier: Apache-2.0
// The products of a training step, each with every algorithm that cuBLASLt names for it: what makes
// the table that runs read. A bench calls it, never a run. The calling thread's device is
// timed; nothing else should use it.
#pragma once

#include <functional>

#include "inner/loop/model_timing.h"
#include "kernels/cuda/matmul_table.h"

namespace isthmus {

struct ProductTime {
  cuda::MatmulShape shape;
  int choice = 0;
  double ms = 0;       // the median of some, each between two events, after one that is not counted
  bool fused = false;  // the library does the epilogue, where the product has one
};

/// Takes one training step of `workload` for its products (timing options as
/// time_model_on_device), then times these one by one. `on_time` hears of each time. The table has
/// each product: its fastest algorithm where that is 1 % faster than the first answer or more, else
/// the first answer.
/// THROWS: as time_model_on_device.
[[nodiscard]] cuda::MatmulTable time_products(
    const Workload& workload, const ModelTimingOptions& options, const cuda::DeviceInfo& device,
    int repetitions, const std::function<void(const ProductTime&)>& on_time);

}  // namespace isthmus
