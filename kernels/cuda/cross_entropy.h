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

/// What ranks that hold some columns each tell one another of a row of logits. A row that does not
/// count is left out: whatever is there is not read.
struct RowShare {
  double top;     // the largest of the rank's logits
  double total;   // of exp(logit - top)
  double target;  // the target's logit where the rank has it, else 0
};

template <typename T>
struct CrossEntropy {
  std::int64_t rows = 0, vocab = 0, ld = 0;  // logits (rows, vocab), rows `ld` apart
  std::int64_t first = 0;                    // of all columns the first that is here
  T* logits = nullptr;  // with `gradient` := d(objective) / d(logits), the columns up to ld zero
  const std::int32_t* targets = nullptr;  // (rows,), negative: ignored
  bool gradient = false;
  /// With `gradient`: one value in device memory, so that what is recorded as a graph holds for
  /// every number of targets.
  const double* gradient_scale = nullptr;
  double z_loss = 0;             // weight of log(Z)^2
  double* row_losses = nullptr;  // scratch: (2 rows,)
  LossTotals* totals = nullptr;
  // Or null and 1: all columns are here.
  const RowShare* shares = nullptr;  // (ranks, rows): row_shares of every rank
  int ranks = 1;
};
/// DETERMINISM: rows' losses are added in double, in an order fixed by `rows`.
/// With `shares` losses are those of all columns, the same bits on each rank, since all of them add
/// in rank order; the gradient is that of the columns here.
template <typename T>
void cross_entropy(Stream& stream, const CrossEntropy<T>& ce);

/// shares (rows,) := this rank's. Reads the logits and targets of `ce`, and nothing else of it but
/// their sizes.
template <typename T>
void row_shares(Stream& stream, const CrossEntropy<T>& ce, RowShare* shares);

}  // namespace isthmus::cuda
