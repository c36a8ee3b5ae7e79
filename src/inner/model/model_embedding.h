// SPDX-License-Identifier: Apache-2.0
// Token and position embedding of a model, or of a rank that holds some rows of the vocabulary
// (Megatron-LM, arXiv:1909.08053, section 3). Real: float or double.
#pragma once

#include <cstdint>

#include "inner/model/model_block.h"
#include "inner/model/model_layout.h"
#include "inner/model/model_weights.h"

namespace isthmus {

/// Rows [first_row, first_row + shape().vocab) of a vocabulary of all_rows.
struct VocabularyShare {
  std::int64_t first_row = 0;
  std::int64_t all_rows = 0;
  std::int64_t largest = 0;  // rows of the rank with most rows
};

/// stream (own rows, d_model) := the embedded ids. Without a codec for sums of pass.tensor, the
/// bits are those of one rank with the whole vocabulary. REQUIRES: ids (rows,) in [0, all_rows)
/// (checked).
template <typename Real>
void embed(const Pass& pass, const ModelLayout& layout, const VocabularyShare& share,
           Weights<Real>& weights, const std::int32_t* ids, Real* stream);

/// Adds the gradients of this rank's rows to `table` and of the positions to `positions` (null if
/// there are none), from the gradient of the stream (own rows, d_model).
template <typename Real>
void add_embedding_gradients(const Pass& pass, const ModelLayout& layout,
                             const VocabularyShare& share, const Real* d_stream,
                             const std::int32_t* ids, Real* table, Real* positions);

}  // namespace isthmus
