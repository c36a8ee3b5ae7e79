// SPDX-License-Identifier: Apache-2.0
#include "inner/model/model_embedding.h"

#include <algorithm>

#include "core/base/check.h"
#include "kernels/embedding.h"

namespace isthmus {
namespace {
constexpr std::int64_t kRowsAtOnce = 64;

// Rows of the own part of the vocabulary, positions once, and the sum over the ranks: of each value
// one summand at most is a table's and one a position's, so the sum has the bits of one rank.
template <typename Real>
void embed_own_rows(const Pass& pass, const ModelLayout& layout, const VocabularyShare& share,
                    Weights<Real>& weights, const std::int32_t* ids, Real* stream) {
  const ModelShape& s = layout.shape();
  const bool gpt2 = s.architecture == Architecture::kGpt2;
  const Real* const table = weights.tensor(layout.embedding());
  const Real* const positions =
      gpt2 && pass.tensor.first() ? weights.tensor(layout.positions()) : nullptr;
  Real* const summand = pass.tensor.summand(stream);
  pass.team.for_blocks(pass.rows(), kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      Real* const y = summand + r * s.d_model;
      const std::int64_t row = ids[r] - share.first_row;
      ISTHMUS_CHECK(ids[r] >= 0 && ids[r] < share.all_rows, r, ids[r], share.all_rows);
      if (row >= 0 && row < s.vocab) {
        std::copy_n(table + row * s.d_model, s.d_model, y);
      } else {
        std::fill_n(y, s.d_model, Real{0});
      }
      if (positions == nullptr) continue;
      const Real* const position = positions + pass.position(r) * s.d_model;
      for (std::int64_t i = 0; i < s.d_model; ++i) y[i] += position[i];
    }
  });
  pass.tensor.sum(stream, pass.rows(), s.d_model);
}
}  // namespace

template <typename Real>
void embed(const Pass& pass, const ModelLayout& layout, const VocabularyShare& share,
           Weights<Real>& weights, const std::int32_t* ids, Real* stream) {
  const ModelShape& s = layout.shape();
  const bool gpt2 = s.architecture == Architecture::kGpt2;
  if (s.vocab != share.all_rows) {
    embed_own_rows(pass, layout, share, weights, ids, stream);
    return;
  }
  if (!weights.by_rows()) {
    // Both tensors at once: the values of `tensor` stay valid until `layer` is called.
    const kernels::Embedding<Real> embedding{.rows = pass.rows(),
                                             .seq = pass.length,
                                             .channels = s.d_model,
                                             .vocab = s.vocab,
                                             .ids = ids,
                                             .starts = pass.document_starts};
    const Real* const positions =
        gpt2 ? weights.tensor(layout.positions()) + pass.before * s.d_model : nullptr;
    kernels::embedding_forward(pass.team, embedding, weights.tensor(layout.embedding()), positions,
                               stream);
    return;
  }
  // The sums of embedding_forward, from those rows of the table that the batch has.
  for (std::int64_t r = 0; r < pass.rows(); ++r) {
    ISTHMUS_CHECK(ids[r] >= 0 && ids[r] < s.vocab, r, ids[r], s.vocab);
    std::copy_n(weights.rows(layout.embedding(), ids[r], 1), s.d_model, stream + r * s.d_model);
  }
  if (!gpt2) return;
  for (std::int64_t first = 0; first < pass.length; ++first) {
    const std::int64_t position = pass.before + first;
    const Real* const row = weights.rows(layout.positions(), position, 1);
    // A position is that of one row a sequence, or of one a document.
    const std::int64_t step = pass.document_starts == nullptr ? pass.length : 1;
    for (std::int64_t r = first; r < pass.rows(); r += step) {
      if (pass.position(r) != position) continue;
      for (std::int64_t i = 0; i < s.d_model; ++i) stream[r * s.d_model + i] += row[i];
    }
  }
}

template <typename Real>
void add_embedding_gradients(const Pass& pass, const ModelLayout& layout,
                             const VocabularyShare& share, const Real* d_stream,
                             const std::int32_t* ids, Real* table, Real* positions) {
  const ModelShape& s = layout.shape();
  d_stream = pass.tensor.all_rows(d_stream, pass.rows(), s.d_model);
  const kernels::Embedding<Real> embedding{.rows = pass.rows(),
                                           .seq = pass.length,
                                           .channels = s.d_model,
                                           .vocab = share.all_rows,
                                           .ids = ids,
                                           .starts = pass.document_starts};
  if (s.vocab == share.all_rows) {
    kernels::embedding_backward(pass.team, embedding, d_stream, table, positions);
    return;
  }
  kernels::embedding_backward<Real>(pass.team, embedding, d_stream, nullptr, positions);
  for (std::int64_t r = 0; r < pass.rows(); ++r) {
    const std::int64_t row = ids[r] - share.first_row;
    if (row < 0 || row >= s.vocab) continue;
    for (std::int64_t i = 0; i < s.d_model; ++i) {
      table[row * s.d_model + i] += d_stream[r * s.d_model + i];
    }
  }
}

template void embed(const Pass&, const ModelLayout&, const VocabularyShare&, Weights<float>&,
                    const std::int32_t*, float*);
template void embed(const Pass&, const ModelLayout&, const VocabularyShare&, Weights<double>&,
                    const std::int32_t*, double*);
template void add_embedding_gradients(const Pass&, const ModelLayout&, const VocabularyShare&,
                                      const float*, const std::int32_t*, float*, float*);
template void add_embedding_gradients(const Pass&, const ModelLayout&, const VocabularyShare&,
                                      const double*, const std::int32_t*, double*, double*);

}  // namespace isthmus
