// SPDX-License-Identifier: Apache-2.0
// What one rank of a mesh holds of one pipeline stage, and where it lies in the canonical layout:
// the stage's layers, of these the tensor-parallel share, the rank's rows of the vocabulary.
// Immutable; safe to share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inner/mesh/pipeline_schedule.h"
#include "inner/model/model_embedding.h"
#include "inner/model/model_layout.h"

namespace isthmus {

/// What a rank's gradient of a tensor is.
enum class Held {
  kShare,    // of its own share of the tensor: nobody else has it
  kWhole,    // of the whole tensor, the same on every tensor-parallel rank
  kPartial,  // a summand of the whole tensor's: to be added over the tensor-parallel ranks
  kCopy,     // a summand of a share's that neighbours hold too: to be added over these
};

/// A norm over queries or keys of single heads, of which a rank has its own; any norm.
[[nodiscard]] bool is_head_norm(std::string_view tensor);
[[nodiscard]] bool is_norm(std::string_view tensor);
/// A weight or bias of keys or values, of which neighbouring ranks may hold copies.
[[nodiscard]] bool is_of_key_heads(std::string_view tensor);
/// Rows that the parts of a fused product have one after another; empty for any other tensor.
[[nodiscard]] std::vector<std::int64_t> fused_parts(const ModelShape& shape,
                                                    std::string_view tensor);

/// Neighbouring ranks of `ranks` tensor-parallel ones that hold the same key heads.
[[nodiscard]] inline int key_copies(const ModelShape& shape, int ranks) {
  return ranks > shape.kv_heads ? ranks / static_cast<int>(shape.kv_heads) : 1;
}

/// `rows` pieces of `columns` neighbouring values.
struct Piece {
  std::int64_t canonical = 0, canonical_stride = 0;  // element ids
  std::int64_t local = 0, local_stride = 0;          // places in the rank's own layout
  std::int64_t rows = 1, columns = 0;
};

/// Which part of the model: share `rank` of `ranks` of the layers of one stage.
struct RankShare {
  int ranks = 1, rank = 0;  // tensor-parallel
  LayerSpan layers;
  bool first_stage = true, last_stage = true;
  bool sequence_parallel = false;  // norms see the rank's tokens alone
};

class RankLayout {
 public:
  /// REQUIRES: check_mesh (inner/mesh/mesh.h) has passed. `share` is the whole model by default.
  RankLayout(const ModelLayout& canonical, const RankShare& share);

  /// The rank's own tensors one after another.
  [[nodiscard]] const ModelLayout& local() const { return local_; }
  [[nodiscard]] const VocabularyShare& vocabulary() const { return vocabulary_; }
  /// This is the whole model: local and canonical places are the same.
  [[nodiscard]] bool whole() const { return whole_; }
  /// Places in local() of gradients that are to be added over the tensor-parallel ranks.
  [[nodiscard]] std::span<const CanonicalRange> partial() const { return partial_; }
  /// Those that are to be added over the ranks with the same key heads.
  [[nodiscard]] std::span<const CanonicalRange> copied() const { return copied_; }
  /// Places in local() of an embedding's table whose gradient another stage has, and updates it:
  /// the one that holds it as its head. Before all others.
  [[nodiscard]] CanonicalRange tied_embedding() const { return tied_embedding_; }

  /// values (range.size(),), of the local places in `range` := those among the canonical ones.
  void take(const float* canonical, CanonicalRange range, float* values) const;
  /// Canonical values := this rank's `values` (range.size(),), of those local places in `range`
  /// that this rank answers for.
  void give(const float* values, CanonicalRange range, float* canonical) const;

  /// This rank answers for its shares of tensors, and for what several ranks have as the first of
  /// these, so that nothing is counted twice.
  [[nodiscard]] bool answers_for(std::size_t local_tensor) const;
  /// Places in local() of what the rank has of the canonical tensors [begin, end), which lie
  /// together, but for a tied_embedding(); empty where it has none of them.
  [[nodiscard]] CanonicalRange places(std::size_t begin, std::size_t end) const;
  /// Index in the canonical layout of a tensor of local().
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
