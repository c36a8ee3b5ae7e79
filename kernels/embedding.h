// SPDX-License-Identifier: Apache-2.0
// Token and position embedding. rows = B T, ids and y row-major. The position of row r is r mod seq
// minus the index of its document's first token in the sequence.
#pragma once

#include <cstdint>

#include "kernels/thread_team.h"

namespace isthmus::kernels {

template <typename Real>
struct Embedding {
  std::int64_t rows = 0, seq = 0, channels = 0, vocab = 0;
  const std::int32_t* ids = nullptr;     // (rows,)
  const std::int32_t* starts = nullptr;  // (rows,): index in the sequence of each document's first
                                         // token; null: 0

  [[nodiscard]] std::int64_t position(std::int64_t row) const {
    return row % seq - (starts == nullptr ? 0 : starts[row]);
  }
};

/// y[r] = table[ids[r]] + positions[position(r)]; table (vocab, channels), positions (seq,
/// channels) or null. REQUIRES: 0 <= ids < vocab (checked); rows a multiple of seq.
template <typename Real>
void embedding_forward(ThreadTeam& team, const Embedding<Real>& e, const Real* table,
                       const Real* positions, Real* y);

/// d_table[ids[r]] += dy[r], d_positions[position(r)] += dy[r] (null skips either).
/// DETERMINISM: rows are added in order.
template <typename Real>
void embedding_backward(ThreadTeam& team, const Embedding<Real>& e, const Real* dy, Real* d_table,
                        Real* d_positions);

}  // namespace isthmus::kernels
