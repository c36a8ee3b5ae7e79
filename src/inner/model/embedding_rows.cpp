// SPDX-License-Identifier: Apache-2.0
#include "inner/model/embedding_rows.h"

#include <algorithm>

#include "core/base/check.h"

namespace isthmus {
namespace {
constexpr std::int64_t kEmbeddingRowsAtOnce = 16;
}  // namespace

template <typename Real>
EmbeddingRows<Real>::EmbeddingRows(const EmbeddingRowsSize& size)
    : size_(size),
      memory_(static_cast<std::size_t>(size.most() * size.channels) * sizeof(Real)),
      tokens_(static_cast<std::size_t>(size.most()), -1),
      places_(static_cast<std::size_t>(size.table), -1),
      batch_(static_cast<std::size_t>(size.micro_batch)) {}

template <typename Real>
std::int64_t EmbeddingRows<Real>::bytes(const EmbeddingRowsSize& size) {
  return size.most() * size.channels * static_cast<std::int64_t>(sizeof(Real)) +
         (size.most() + size.table + size.micro_batch) *
             static_cast<std::int64_t>(sizeof(std::int32_t));
}

template <typename Real>
void EmbeddingRows<Real>::begin() {
  for (std::int64_t i = 0; i < count_; ++i) {
    std::int32_t& token = tokens_[static_cast<std::size_t>(i)];
    places_[static_cast<std::size_t>(token)] = -1;
    token = -1;
  }
  count_ = 0;
}

template <typename Real>
std::int32_t EmbeddingRows<Real>::place(std::int64_t row) {
  std::int32_t& place = places_[static_cast<std::size_t>(row)];
  if (place < 0) {
    ISTHMUS_CHECK(count_ < size_.most(), count_, size_.most());
    tokens_[static_cast<std::size_t>(count_)] = static_cast<std::int32_t>(row);
    place = static_cast<std::int32_t>(count_++);
  }
  return place;
}

template <typename Real>
std::span<const Real> EmbeddingRows<Real>::values() const {
  return {static_cast<const Real*>(memory_.data()),
          static_cast<std::size_t>(size_.most() * size_.channels)};
}

template <typename Real>
void EmbeddingRows<Real>::add(const Pass& pass, const ModelLayout& layout,
                              const VocabularyShare& share, const Real* d_stream,
                              const std::int32_t* ids, Real* positions) {
  ISTHMUS_CHECK(pass.rows() <= size_.micro_batch, pass.rows(), size_.micro_batch);
  ISTHMUS_CHECK(layout.shape().vocab == size_.table, layout.shape().vocab, size_.table);
  const std::int64_t before = count_;
  for (std::int64_t r = 0; r < pass.rows(); ++r) {
    const std::int64_t row = ids[r] - share.first_row;
    const bool own = row >= 0 && row < size_.table;  // else of another tensor-parallel rank
    batch_[static_cast<std::size_t>(r)] = own ? place(row) : static_cast<std::int32_t>(size_.table);
  }
  Real* const values = static_cast<Real*>(memory_.data());
  const std::int64_t channels = size_.channels;
  pass.team.for_blocks(count_ - before, kEmbeddingRowsAtOnce,
                       [&](std::int64_t begin, std::int64_t end) {
                         std::fill(values + (before + begin) * channels,
                                   values + (before + end) * channels, Real{0});
                       });
  VocabularyShare kept = share;
  kept.first_row = 0;
  add_embedding_gradients(pass, layout, kept, d_stream, batch_.data(), values, positions);
}

template <typename Real>
void EmbeddingRows<Real>::add_to(kernels::ThreadTeam& team, Real* table) const {
  add_rows(team, tokens(), values().data(), size_.channels, table);
}

template <typename Real>
void add_rows(kernels::ThreadTeam& team, std::span<const std::int32_t> tokens, const Real* values,
              std::int64_t channels, Real* table) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  team.for_blocks(count, kEmbeddingRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t token = tokens[static_cast<std::size_t>(r)];
      if (token < 0) continue;
      Real* const to = table + token * channels;
      for (std::int64_t i = 0; i < channels; ++i) to[i] += values[r * channels + i];
    }
  });
}

template class EmbeddingRows<float>;
template class EmbeddingRows<double>;
template void add_rows(kernels::ThreadTeam&, std::span<const std::int32_t>, const float*,
                       std::int64_t, float*);
template void add_rows(kernels::ThreadTeam&, std::span<const std::int32_t>, const double*,
                       std::int64_t, double*);

}  // namespace isthmus
