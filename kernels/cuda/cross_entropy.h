// SPDX-License-Identifier: Apache-2.0
// Softmax cross-entropy of a chunk of logits on the device, whose gradient takes the logits' place.
// The formulas are those of kernels/cross_entropy.h; products are the caller's.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// Sums on the device, added to: zero them first.
struct LossTotals {
  double loss;    // -log p[target], nats
  double z_loss;  // weight * log(Z)^2
  std::int64_t targets;
};

template <typename T>
struct CrossEntropy {
  std::int64_t rows = 0, vocab = 0, ld = 0;  // logits (rows, vocab), rows `ld` apart
  T* logits = nullptr;  // with `gradient` := d(objective) / d(logits), the columns up to ld zero
  const std::int32_t* targets = nullptr;  // (rows,), negative: ignored
  bool gradient = false;
  double gradient_scale = 1;
  double z_loss = 0;             // weight of log(Z)^2
  double* row_losses = nullptr;  // scratch: (2 rows,)
  LossTotals* totals = nullptr;
};
/// DETERMINISM: rows' losses are added in double, in an order fixed by `rows`.
template <typename T>
void cross_entropy(Stream& stream, const CrossEntropy<T>& ce);

}  // namespace isthmus::cuda
