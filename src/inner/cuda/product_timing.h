// SPDX-License-Identifier: Apache-2.0
// Times the matrix products of a training step with every algorithm that cuBLASLt offers, to make
// the table that runs read. Called by a benchmark, never by a run. Uses the calling thread's
// device, which must be otherwise idle.
#pragma once

#include <functional>

#include "inner/loop/model_timing.h"
#include "kernels/cuda/matmul_table.h"

namespace isthmus {

struct ProductTime {
  cuda::MatmulShape shape;
  int choice = 0;
  double ms = 0;       // median of several runs, each between two events, after one uncounted run
  bool fused = false;  // the library fuses the product's epilogue, if it has one
};

/// Takes one training step of `workload` to collect its matrix products (timing options as
/// time_model_on_device), then times each of them. Calls `on_time` for each time. The table has
/// every product: its fastest algorithm if that is at least 1 % faster than the library's first
/// choice, else the first choice. `repetitions`: runs of which each time is the median, at least 1.
/// THROWS: as time_model_on_device; SystemError where the library refuses its first choice.
[[nodiscard]] cuda::MatmulTable time_products(
    const Workload& workload, const ModelTimingOptions& options, const cuda::DeviceInfo& device,
    int repetitions, const std::function<void(const ProductTime&)>& on_time);

}  // namespace isthmus
