// SPDX-License-Identifier: Apache-2.0
// Token and position embedding on the device, as kernels/embedding.h. Device memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.h"

namespace isthmus::cuda {

struct Embedding {
  std::int64_t rows = 0, seq = 0, channels = 0;
  std::int64_t vocab = 0;             // rows of the table
  const std::int32_t* ids = nullptr;  // (rows,); ids outside the table give a row of zeros
  std::int64_t first = 0;             // id of the table's first row
};

/// y (rows, channels) = table[ids[r] - first] + positions[r mod seq]; positions may be null.
void embedding_forward(Stream& stream, const Embedding& e, const float* table,
                       const float* positions, float* y);

/// d_table[ids[r] - first] += dy[r], d_positions[r mod seq] += dy[r]; d_positions may be null.
/// order: the rows sorted by id, stably (embedding_order), so that one block adds each table row,
/// in row order. DETERMINISM: the same bits in every run.
void embedding_backward(Stream& stream, const Embedding& e, const std::int32_t* order,
                        const float* dy, float* d_table, float* d_positions);

/// On the host: order (rows,) := row numbers sorted by id, stably. ids are host memory here.
void embedding_order(std::int64_t rows, std::int64_t vocab, const std::int32_t* ids,
                     std::int32_t* order);

}  // namespace isthmus::cuda
