// SPDX-License-Identifier: Apache-2.0
// The part of the model that one rank holds of one pipeline stage, and its position in the
// canonical layout: the tensor-parallel share of the stage's layers, and the rank's rows of the
// vocabulary. Immutable; safe to share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inner/mesh/pipeline_schedule.h"
#include "inner/model/model_embedding.h"
#include "inner/model/model_layout.h"

namespace isthmus {

/// Relation of a rank's gradient of a tensor to the whole gradient.
enum class Held {
  kShare,    // gradient of the rank's share, which no other rank holds
  kWhole,    // gradient of the whole tensor, the same on every tensor-parallel rank
  kPartial,  // a summand of the whole gradient, to be summed over the tensor-parallel ranks
  kCopy,     // a summand of a share that neighbouring ranks hold too, to be summed over these
};

/// is_head_norm: a norm over queries or keys of single heads, of which a rank has its own heads'.
/// is_norm: any norm.
[[nodiscard]] bool is_head_norm(std::string_view tensor);
[[nodiscard]] bool is_norm(std::string_view tensor);
/// A weight or bias of keys or values, of which neighbouring ranks may hold copies.
[[nodiscard]] bool is_of_key_heads(std::string_view tensor);
/// Row counts of the consecutive parts of a fused tensor (q, k, v); empty for any other tensor.
[[nodiscard]] std::vector<std::int64_t> fused_parts(const ModelShape& shape,
                                                    std::string_view tensor);

/// Number of neighbouring ranks, out of `ranks` tensor-parallel ranks, that hold the same key
/// heads.
[[nodiscard]] inline int key_copies(const ModelShape& shape, int ranks) {
  return ranks > shape.kv_heads ? ranks / static_cast<int>(shape.kv_heads) : 1;
}

/// `rows` pieces of `columns` contiguous values.
struct Piece {
  std::int64_t canonical = 0, canonical_stride = 0;  // element ids
  std::int64_t local = 0, local_stride = 0;          // indices in the rank's own layout
  std::int64_t rows = 1, columns = 0;
};

/// A part of the model: share `rank` of `ranks` of the layers of one stage.
struct RankShare {
  int ranks = 1, rank = 0;  // tensor-parallel
  LayerSpan layers;
  bool first_stage = true, last_stage = true;
  bool sequence_parallel = false;  // norms see only the rank's tokens
};

class RankLayout {
 public:
  /// REQUIRES: check_mesh (inner/mesh/mesh.h) has passed. `share` is the whole model by default.
  RankLayout(const ModelLayout& canonical, const RankShare& share);

  /// The rank's tensors, concatenated.
  [[nodiscard]] const ModelLayout& local() const { return local_; }
  [[nodiscard]] const VocabularyShare& vocabulary() const { return vocabulary_; }
  /// True for the whole model: local and canonical indices are equal.
  [[nodiscard]] bool whole() const { return whole_; }
  /// Ranges of local() with gradients to be summed over the tensor-parallel ranks.
  [[nodiscard]] std::span<const CanonicalRange> partial() const { return partial_; }
  /// Ranges of local() with gradients to be summed over the ranks with the same key heads.
  [[nodiscard]] std::span<const CanonicalRange> copied() const { return copied_; }
  /// Range of local() of an embedding table whose gradient another stage has and updates: the stage
  /// that uses it as its head. It is the first range of local().
  [[nodiscard]] CanonicalRange tied_embedding() const { return tied_embedding_; }

  /// values (range.size(),) := the canonical values of the local indices in `range`.
  void take(const float* canonical, CanonicalRange range, float* values) const;
  /// Writes `values` (range.size(),) of the local indices in `range` to their canonical places, as
  /// far as answers_for() holds.
  void give(const float* values, CanonicalRange range, float* canonical) const;

  /// True if this rank represents the tensor in collected values: its own shares, and tensors of
  /// several ranks on the first of them, so that no value counts twice.
  [[nodiscard]] bool answers_for(std::size_t local_tensor) const;
  /// Range of local() of the rank's parts of the canonical tensors [begin, end), which are
  /// contiguous, without a tied_embedding(); empty if it has none of them.
  [[nodiscard]] CanonicalRange places(std::size_t begin, std::size_t end) const;
  /// Canonical index of a tensor of local().
  [[nodiscard]] std::size_t canonical_tensor(std::size_t local_tensor) const {
    return tensors_[local_tensor].canonical;
  }

 private:
  struct Tensor {
    Held held = Held::kShare;
    std::vector<Piece> pieces;
    std::size_t canonical = 0;
  };
  [[nodiscard]] Tensor place(const TensorInfo& canonical, const TensorInfo& local) const;

  RankShare share_;
  int copies_;  // ranks with the same key heads
  VocabularyShare vocabulary_;
  ModelLayout local_;
  bool whole_;
  std::vector<Tensor> tensors_;
  std::vector<CanonicalRange> partial_, copied_;
  CanonicalRange tied_embedding_{0, 0};
};

}  // namespace isthmus
