// SPDX-License-Identifier: Apache-2.0
// What one rank of a mesh holds of one pipeline stage, and where it lies in the canonical layout:
// the stage's layers, of these the tensor-parallel share, the rank's rows of the vocabulary.
// Immutable; safe to share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inner/model_embedding.h"
#include "inner/model_layout.h"
#include "inner/pipeline_schedule.h"

namespace isthmus {

/// What a rank's gradient of a tensor is.
enum class Held {
  kShare,    // of its own share of the tensor: nobody else has it
  kWhole,    // of the whole tensor, the same on every tensor-parallel rank
  kPartial,  // a summand of the whole tensor's: to be added over the tensor-parallel ranks
};

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
};

class RankLayout {
 public:
  /// REQUIRES: check_mesh (inner/mesh.h) has passed. `share` is the whole model by default.
  RankLayout(const ModelLayout& canonical, const RankShare& share);

  /// The rank's own tensors one after another.
  [[nodiscard]] const ModelLayout& local() const { return local_; }
  [[nodiscard]] const VocabularyShare& vocabulary() const { return vocabulary_; }
  /// This is the whole model: local and canonical places are the same.
  [[nodiscard]] bool whole() const { return whole_; }
  /// Places in local() of gradients that are to be added over the tensor-parallel ranks.
  [[nodiscard]] std::span<const CanonicalRange> partial() const { return partial_; }
  /// Places in local() of an embedding's table that another stage holds too: this stage's head.
  [[nodiscard]] CanonicalRange tied_head() const { return tied_head_; }

  /// local (local().elements(),) := its values among the canonical ones.
  void take(const float* canonical, float* local) const;
  /// Canonical gradients := (or +=, with `add`) this rank's, of those local places in `range` that
  /// this rank answers for: its shares, and as the first tensor-parallel rank what all have.
  void give(const float* local, CanonicalRange range, bool add, float* canonical) const;

 private:
  struct Tensor {
    Held held = Held::kShare;
    std::vector<Piece> pieces;
  };
  [[nodiscard]] Tensor place(const TensorInfo& canonical, const TensorInfo& local) const;

  RankShare share_;
  VocabularyShare vocabulary_;
  ModelLayout local_;
  bool whole_;
  std::vector<Tensor> tensors_;
  std::vector<CanonicalRange> partial_;
  CanonicalRange tied_head_{0, 0};
};

}  // namespace isthmus
