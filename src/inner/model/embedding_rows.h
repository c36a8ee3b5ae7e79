// SPDX-License-Identifier: Apache-2.0
// The token embedding's part of the gradient of a tied table (a table that is the output head too):
// the rows of the tokens of a step, in order of first use. The rows are kept apart from the head's
// part and added to it once, after the step's last micro-batch. So a tied table's gradient has the
// bits of one rank also in a pipeline whose first stage has the embedding and whose last stage has
// the head.
//
// Memory is allocated once. One thread. DETERMINISM: a row's summands are added in the order of
// micro-batches and tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inner/model/model_embedding.h"
#include "kernels/aligned_buffer.h"

namespace isthmus {

struct EmbeddingRowsSize {
  std::int64_t table = 0;        // rows of the table, or of a rank's share of it
  std::int64_t channels = 0;     // of a row
  std::int64_t step = 0;         // largest number of tokens of a step
  std::int64_t micro_batch = 0;  // largest number of tokens added at a time

  /// Largest number of rows that a step can touch.
  [[nodiscard]] std::int64_t most() const { return table < step ? table : step; }
};

/// Sizes for the table of `layout`, with `tokens` of a step in `micro_batches`.
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

  /// Begins a step: removes all rows.
  void begin();
  /// As add_embedding_gradients of the layout's model, into these rows in place of the table.
  void add(const Pass& pass, const ModelLayout& layout, const VocabularyShare& share,
           const Real* d_stream, const std::int32_t* ids, Real* positions);
  /// table (rows, channels) += the rows.
  void add_to(kernels::ThreadTeam& team, Real* table) const;

  /// (most(),): each row's index in the table, -1 if the step has touched fewer rows.
  [[nodiscard]] std::span<const std::int32_t> tokens() const { return tokens_; }
  /// (most(), channels): the rows; unspecified where tokens() is -1.
  [[nodiscard]] std::span<const Real> values() const;

  [[nodiscard]] std::int64_t held_bytes() const { return bytes(size_); }
  /// Bytes of an object of this size.
  [[nodiscard]] static std::int64_t bytes(const EmbeddingRowsSize& size);

 private:
  /// Index of the kept row of table row `row`, which is appended at its first use.
  [[nodiscard]] std::int32_t place(std::int64_t row);

  EmbeddingRowsSize size_;
  kernels::AlignedBuffer memory_;     // of the values
  std::int64_t count_ = 0;            // rows in use
  std::vector<std::int32_t> tokens_;  // (most(),)
  std::vector<std::int32_t> places_;  // (table,): index of each table row's kept row, or -1
  std::vector<std::int32_t> batch_;   // (micro_batch,): indices of the kept rows of a micro-batch's
                                      // tokens
};

/// table (rows, channels) += `values` (tokens, channels) at the rows `tokens`, except negative
/// ones. REQUIRES: no row twice.
template <typename Real>
void add_rows(kernels::ThreadTeam& team, std::span<const std::int32_t> tokens, const Real* values,
              std::int64_t channels, Real* table);

}  // namespace isthmus
