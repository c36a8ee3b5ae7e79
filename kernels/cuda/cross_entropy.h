// SPDX-License-Identifier: Apache-2.0
// Softmax cross-entropy of a chunk of logits on the device; its gradient overwrites the logits. The
// formulas are those of kernels/cross_entropy.h; the caller computes the matrix products.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// Sums on the device, added to: the caller must zero them first.
struct LossTotals {
  double loss;    // -log p[target], nats
  double z_loss;  // weight * log(Z)^2
  std::int64_t targets;
};

/// Statistics of a row of logits that ranks with different columns exchange. Rows whose target does
/// not count are not written and not read.
struct RowShare {
  double top;     // the largest of the rank's logits
  double total;   // of exp(logit - top)
  double target;  // the target's logit if the rank has its column, else 0
};

template <typename T>
struct CrossEntropy {
  std::int64_t rows = 0, vocab = 0, ld = 0;  // logits (rows, vocab), rows `ld` apart
  std::int64_t first = 0;                    // index of the first column here among all columns
  T* logits = nullptr;  // with `gradient` := d(objective) / d(logits), zero in columns vocab .. ld
                        // - 1
  const std::int32_t* targets = nullptr;  // (rows,), negative: ignored
  bool gradient = false;
  /// With `gradient`: one value in device memory, so that a captured graph is valid for every
  /// number of targets.
  const double* gradient_scale = nullptr;
  double z_loss = 0;             // weight of log(Z)^2
  double* row_losses = nullptr;  // scratch: (2 rows,)
  LossTotals* totals = nullptr;
  // Null and 1 if all columns are here.
  const RowShare* shares = nullptr;  // (ranks, rows): row_shares of every rank
  int ranks = 1;
};
/// DETERMINISM: rows' losses are added in double, in an order fixed by `rows`. With `shares` losses
/// are over all columns, with the same bits on each rank, since all ranks add in rank order; the
/// gradient is that of the columns here.
template <typename T>
void cross_entropy(Stream& stream, const CrossEntropy<T>& ce);

/// shares (rows,) := this rank's statistics. Of `ce` reads only logits, targets and sizes.
template <typename T>
void row_shares(Stream& stream, const CrossEntropy<T>& ce, RowShare* shares);

}  // namespace isthmus::cuda
