// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/rank_layout.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/base/check.h"

namespace isthmus {
namespace {

VocabularyShare vocabulary_share(std::int64_t vocab, const RankShare& share) {
  return {.first_row = vocab * share.rank / share.ranks,
          .all_rows = vocab,
          .largest = (vocab + share.ranks - 1) / share.ranks};
}

ModelShape rank_shape(ModelShape s, const RankShare& share) {
  s.heads /= share.ranks;
  s.kv_heads = std::max<std::int64_t>(1, s.kv_heads / share.ranks);
  s.d_ff /= share.ranks;
  s.vocab = s.vocab * (share.rank + 1) / share.ranks - s.vocab * share.rank / share.ranks;
  s.layers = share.layers.size();
  return s;
}

std::int64_t columns_of(const TensorInfo& tensor) { return tensor.shape.back(); }
std::int64_t rows_of(const TensorInfo& tensor) {
  return tensor.shape.size() > 1 ? tensor.shape[0] : 1;
}

}  // namespace

bool is_head_norm(std::string_view tensor) {
  return tensor.ends_with("q_norm.weight") || tensor.ends_with("k_norm.weight");
}

bool is_of_key_heads(std::string_view tensor) {
  return tensor.find(".k_proj.") != tensor.npos || tensor.find(".v_proj.") != tensor.npos;
}

std::vector<std::int64_t> fused_parts(const ModelShape& s, std::string_view tensor) {
  if (!s.family.fused_products) return {};
  if (tensor.ends_with("qkv_proj.weight")) return {s.query_width(), s.key_width(), s.key_width()};
  if (tensor.ends_with("gate_up_proj.weight")) return {s.d_ff, s.d_ff};
  return {};
}

bool is_norm(std::string_view tensor) {
  return tensor.find("norm.") != tensor.npos || tensor.find("ln_") != tensor.npos;
}

RankLayout::RankLayout(const ModelLayout& canonical, const RankShare& share)
    : share_(share),
      copies_(key_copies(canonical.shape(), share.ranks)),
      vocabulary_(vocabulary_share(canonical.shape().vocab, share)),
      local_(rank_shape(canonical.shape(), share), {.first_layer = share.layers.begin,
                                                    .embedding = share.first_stage,
                                                    .head = share.last_stage}),
      whole_(share.ranks == 1 && share.first_stage && share.last_stage) {
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < canonical.tensors().size(); ++i) {
    by_name[canonical.tensors()[i].name] = i;
  }
  for (const TensorInfo& tensor : local_.tensors()) {
    const auto found = by_name.find(tensor.name);
    ISTHMUS_CHECK(found != by_name.end(), tensor.name);
    tensors_.push_back(place(canonical.tensors()[found->second], tensor));
    tensors_.back().canonical = found->second;
    if (share.ranks > 1 && tensors_.back().held == Held::kPartial)
      partial_.push_back(tensor.elements);
    if (tensors_.back().held == Held::kCopy) copied_.push_back(tensor.elements);
  }
  const ModelPart& part = local_.part();
  if (part.embedding && !part.head && canonical.shape().tied) {
    tied_embedding_ = local_.tensors()[local_.embedding()].elements;
  }
}

// Which dimension is cut follows from the shapes. Exceptions: GPT-2 and Phi-3 hold queries, keys
// and values side by side and a rank has its heads of each (Phi-3 also gate and up); norms of
// single heads are whole on each rank but see only its heads, other norms with a split sequence
// only its tokens (biases of closing products and positions see all tokens: the gradients that they
// read are gathered for the products); more ranks than key heads hold copies of these.
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
  if (copies_ > 1 && is_of_key_heads(local.name)) {
    return {Held::kCopy,
            {{.canonical = canonical.elements.begin + share_.rank / copies_ * rows * wide,
              .local = local.elements.begin,
              .columns = local.elements.size()}}};
  }
  if (canonical.shape == local.shape) {
    const bool partial =
        is_head_norm(local.name) || (share_.sequence_parallel && is_norm(local.name));
    return {partial ? Held::kPartial : Held::kWhole,
            {{.canonical = canonical.elements.begin,
              .local = local.elements.begin,
              .columns = local.elements.size()}}};
  }
  if (local.name.ends_with("attn.c_attn.weight") || local.name.ends_with("attn.c_attn.bias")) {
    const std::int64_t share = narrow / 3;
    Tensor tensor;
    for (std::int64_t part = 0; part < 3; ++part) {
      tensor.pieces.push_back(columns(part * wide / 3 + share_.rank * share, part * share, share));
    }
    return tensor;
  }
  const std::vector<std::int64_t> parts = fused_parts(local_.shape(), local.name);
  if (!parts.empty()) {  // whole rows of each part
    Tensor tensor;
    std::int64_t above = 0;
    for (const std::int64_t part : parts) {
      tensor.pieces.push_back({.canonical = canonical.elements.begin +
                                            (above * share_.ranks + share_.rank * part) * wide,
                               .local = local.elements.begin + above * wide,
                               .columns = part * wide});
      above += part;
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

namespace {

/// Neighbouring values: a row of a piece, as far as it lies in `range`.
struct Overlap {
  std::int64_t canonical, local, count;
};

Overlap row_in(const Piece& piece, std::int64_t row, CanonicalRange range) {
  const std::int64_t place = piece.local + row * piece.local_stride;
  const std::int64_t begin = std::max(place, range.begin);
  const std::int64_t end = std::min(place + piece.columns, range.end);
  return {piece.canonical + row * piece.canonical_stride + (begin - place), begin,
          std::max<std::int64_t>(end - begin, 0)};
}

/// body(overlap) for the rows of a piece that have values in `range`, and for no others: ranges are
/// small where canonical values are exchanged, and tensors have many rows.
template <typename Body>
void for_rows_in(const Piece& piece, CanonicalRange range, const Body& body) {
  std::int64_t row = 0;
  if (piece.rows > 1 && range.begin > piece.local) {
    row = (range.begin - piece.local) / piece.local_stride;
  }
  for (; row < piece.rows && piece.local + row * piece.local_stride < range.end; ++row) {
    const Overlap part = row_in(piece, row, range);
    if (part.count > 0) body(part);
  }
}

}  // namespace

bool RankLayout::answers_for(std::size_t local_tensor) const {
  const Held held = tensors_[local_tensor].held;
  if (held == Held::kShare) return true;
  return share_.rank % (held == Held::kCopy ? copies_ : share_.ranks) == 0;
}

// Local tensors are in canonical order.
CanonicalRange RankLayout::places(std::size_t begin, std::size_t end) const {
  CanonicalRange all{0, 0};
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const CanonicalRange here = local_.tensors()[t].elements;
    const bool wanted = tensors_[t].canonical >= begin && tensors_[t].canonical < end;
    if (!wanted || here == tied_embedding_) continue;
    if (all.size() == 0) all.begin = here.begin;
    all.end = here.end;
  }
  return all;
}

void RankLayout::take(const float* canonical, CanonicalRange range, float* values) const {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const CanonicalRange here = common(local_.tensors()[t].elements, range);
    if (here.size() == 0) continue;
    for (const Piece& piece : tensors_[t].pieces) {
      for_rows_in(piece, here, [&](const Overlap& part) {
        std::copy_n(canonical + part.canonical, part.count, values + (part.local - range.begin));
      });
    }
  }
}

void RankLayout::give(const float* values, CanonicalRange range, float* canonical) const {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const CanonicalRange here = common(local_.tensors()[t].elements, range);
    if (here.size() == 0 || !answers_for(t)) continue;
    for (const Piece& piece : tensors_[t].pieces) {
      for_rows_in(piece, here, [&](const Overlap& part) {
        std::copy_n(values + (part.local - range.begin), part.count, canonical + part.canonical);
      });
    }
  }
}

}  // namespace isthmus
