// SPDX-License-Identifier: Apache-2.0
#include "inner/rank_layout.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/check.h"

namespace isthmus {
namespace {

VocabularyShare vocabulary_share(std::int64_t vocab, const RankShare& share) {
  return {.first_row = vocab * share.rank / share.ranks,
          .all_rows = vocab,
          .largest = (vocab + share.ranks - 1) / share.ranks};
}

ModelShape rank_shape(ModelShape s, const RankShare& share) {
  s.heads /= share.ranks;
  s.kv_heads /= share.ranks;
  s.d_ff /= share.ranks;
  s.vocab = s.vocab * (share.rank + 1) / share.ranks - s.vocab * share.rank / share.ranks;
  s.layers = share.layers.size();
  return s;
}

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

std::int64_t columns_of(const TensorInfo& tensor) { return tensor.shape.back(); }
std::int64_t rows_of(const TensorInfo& tensor) {
  return tensor.shape.size() > 1 ? tensor.shape[0] : 1;
}

}  // namespace

RankLayout::RankLayout(const ModelLayout& canonical, const RankShare& share)
    : share_(share),
      vocabulary_(vocabulary_share(canonical.shape().vocab, share)),
      local_(rank_shape(canonical.shape(), share), {.first_layer = share.layers.begin,
                                                    .embedding = share.first_stage,
                                                    .head = share.last_stage}),
      whole_(share.ranks == 1 && share.first_stage && share.last_stage) {
  std::map<std::string, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : canonical.tensors()) by_name[tensor.name] = &tensor;
  for (const TensorInfo& tensor : local_.tensors()) {
    const auto found = by_name.find(tensor.name);
    ISTHMUS_CHECK(found != by_name.end(), tensor.name);
    tensors_.push_back(place(*found->second, tensor));
    if (share.ranks > 1 && tensors_.back().held == Held::kPartial)
      partial_.push_back(tensor.elements);
  }
  const ModelPart& part = local_.part();
  if (part.head && !part.embedding && canonical.shape().tied) {
    tied_head_ = local_.tensors()[local_.head()].elements;
  }
}

// Which dimension is cut follows from the shapes. Two exceptions: GPT-2 holds queries, keys and
// values side by side and a rank has its heads of each; norms of single heads are whole on each
// rank but see only its heads.
RankLayout::Tensor RankLayout::place(const TensorInfo& canonical, const TensorInfo& local) const {
  const std::int64_t wide = columns_of(canonical);
  const std::int64_t narrow = columns_of(local);
  const std::int64_t rows = rows_of(local);
  const auto columns = [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    return Piece{.canonical = canonical.elements.begin + from,
                 .canonical_stride = wide,
                 .local = local.elements.begin + to,
                 .local_stride = narrow,
                 .rows = rows,
                 .columns = count};
  };
  if (canonical.shape == local.shape) {
    const bool of_heads =
        ends_with(local.name, "q_norm.weight") || ends_with(local.name, "k_norm.weight");
    return {of_heads ? Held::kPartial : Held::kWhole,
            {{.canonical = canonical.elements.begin,
              .local = local.elements.begin,
              .columns = local.elements.size()}}};
  }
  if (ends_with(local.name, "attn.c_attn.weight") || ends_with(local.name, "attn.c_attn.bias")) {
    const std::int64_t share = narrow / 3;
    Tensor tensor;
    for (std::int64_t part = 0; part < 3; ++part) {
      tensor.pieces.push_back(columns(part * wide / 3 + share_.rank * share, part * share, share));
    }
    return tensor;
  }
  if (wide != narrow) return {Held::kShare, {columns(share_.rank * narrow, 0, narrow)}};
  // Whole rows lie together.
  const bool vocabulary = canonical.layer < 0;
  const std::int64_t first = vocabulary ? vocabulary_.first_row : share_.rank * rows;
  return {Held::kShare,
          {{.canonical = canonical.elements.begin + first * wide,
            .local = local.elements.begin,
            .columns = local.elements.size()}}};
}

void RankLayout::take(const float* canonical, float* local) const {
  for (const Tensor& tensor : tensors_) {
    for (const Piece& piece : tensor.pieces) {
      for (std::int64_t row = 0; row < piece.rows; ++row) {
        std::copy_n(canonical + piece.canonical + row * piece.canonical_stride, piece.columns,
                    local + piece.local + row * piece.local_stride);
      }
    }
  }
}

void RankLayout::give(const float* local, CanonicalRange range, bool add, float* canonical) const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.held != Held::kShare && share_.rank != 0) continue;
    for (const Piece& piece : tensor.pieces) {
      for (std::int64_t row = 0; row < piece.rows; ++row) {
        const std::int64_t place = piece.local + row * piece.local_stride;
        const std::int64_t begin = std::max(place, range.begin);
        const std::int64_t end = std::min(place + piece.columns, range.end);
        float* const to =
            canonical + piece.canonical + row * piece.canonical_stride + (begin - place);
        for (std::int64_t i = 0; i < end - begin; ++i) {
          to[i] = add ? to[i] + local[begin + i] : local[begin + i];
        }
      }
    }
  }
}

}  // namespace isthmus
