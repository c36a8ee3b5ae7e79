// SPDX-License-Identifier: Apache-2.0
// What the token embedding adds to the gradient of a table that is the output head too: the rows of
// those tokens that a step has seen, one after another as they came. They are kept apart from what
// the head adds and added to that once, after the step's last micro-batch. So a tied table's
// gradient has the bits of one rank in a pipeline as well, whose first stage has the embedding and
// whose last one the head.
//
// Room is made once. One thread. DETERMINISM: a row's summands are added in the order of
// micro-batches and tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inner/model/model_embedding.h"
#include "kernels/aligned_buffer.h"

namespace isthmus {

struct EmbeddingRowsSize {
  std::int64_t table = 0;        // rows of the table, of a rank's share of it
  std::int64_t channels = 0;     // of a row
  std::int64_t step = 0;         // most tokens of a step
  std::int64_t micro_batch = 0;  // most tokens that are added at a time

  /// Most rows that a step can touch.
  [[nodiscard]] std::int64_t most() const { return table < step ? table : step; }
};

/// Of the table that `layout` has: `tokens` of a step in so many micro-batches.
[[nodiscard]] inline EmbeddingRowsSize embedding_rows_size(const ModelLayout& layout,
                                                           std::int64_t tokens,
                                                           std::int64_t micro_batches) {
  return {.table = layout.shape().vocab,
          .channels = layout.shape().d_model,
          .step = tokens,
          .micro_batch = tokens / micro_batches};
}

template <typename Real>
class EmbeddingRows {
 public:
  /// THROWS: std::bad_alloc.
  explicit EmbeddingRows(const EmbeddingRowsSize& size);

  /// A step begins: there are no rows.
  void begin();
  /// As add_embedding_gradients of the layout's model, with these rows in the place of the table.
  void add(const Pass& pass, const ModelLayout& layout, const VocabularyShare& share,
           const Real* d_stream, const std::int32_t* ids, Real* positions);
  /// table (rows, channels) += the rows.
  void add_to(kernels::ThreadTeam& team, Real* table) const;

  /// (most(),): rows of the table, -1 where the step has touched fewer.
  [[nodiscard]] std::span<const std::int32_t> tokens() const { return tokens_; }
  /// (most(), channels): theirs; not set where there is none.
  [[nodiscard]] std::span<const Real> values() const;

  [[nodiscard]] std::int64_t held_bytes() const { return bytes(size_); }
  /// What such rows hold.
  [[nodiscard]] static std::int64_t bytes(const EmbeddingRowsSize& size);

 private:
  /// Where a row of the table is kept; the first time at the end of what is there.
  [[nodiscard]] std::int32_t place(std::int64_t row);

  EmbeddingRowsSize size_;
  kernels::AlignedBuffer memory_;     // of the values
  std::int64_t count_ = 0;            // rows that are there
  std::vector<std::int32_t> tokens_;  // (most(),)
  std::vector<std::int32_t> places_;  // (table,): of each row of the table, or -1
  std::vector<std::int32_t> batch_;   // (micro_batch,): places of a micro-batch's tokens
};

/// table (rows, channels) += `values` (tokens, channels) at the rows `tokens`, less those that are
/// negative. REQUIRES: no row twice.
template <typename Real>
void add_rows(kernels::ThreadTeam& team, std::span<const std::int32_t> tokens, const Real* values,
              std::int64_t channels, Real* table);

}  // namespace isthmus
