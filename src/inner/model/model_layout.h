// SPDX-License-Identifier: Apache-2.0
// The canonical layout: every tensor of a model, by the names and in the storage order of Hugging
// Face, one after another without gaps. Element ids, initial weights, fragments, codec tiles and
// checkpoints refer to it; export is a copy. GPT-2's linear weights are (in, out) as its Conv1D
// stores them, Llama's (out, in). Immutable; safe to share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inner/model/model_shape.h"
#include "isthmus/inner_loop.h"
#include "isthmus/types.h"

namespace isthmus {

/// How a tensor starts.
enum class TensorInit {
  kZero,      // biases
  kOne,       // norm weights
  kNormal,    // N(0, 0.02)
  kResidual,  // N(0, 0.02 / sqrt(2 L)): GPT-2's projections into the residual stream
  kUniform,   // U(-1 / sqrt(in), 1 / sqrt(in)) of an (out, in) matrix: an adapter's A
};

/// Weights of norms: as good as 1.
[[nodiscard]] inline TensorInit norm_init(const ModelShape& shape) {
  return shape.family.norm_weight_offset == 1 ? TensorInit::kZero : TensorInit::kOne;
}

struct TensorInfo {
  std::string name;
  int layer = -1;                   // 0 .. L-1, or kNoLayer
  std::vector<std::int64_t> shape;  // row-major
  CanonicalRange elements;
  TensorInit init = TensorInit::kZero;
  [[nodiscard]] bool decay() const { return shape.size() >= 2; }
  /// A weight of a linear layer inside the network: neither embedding, positions nor head.
  [[nodiscard]] bool hidden_matrix() const { return layer >= 0 && shape.size() == 2; }
};

/// What both have; empty at some place when they have nothing.
[[nodiscard]] inline CanonicalRange common(CanonicalRange a, CanonicalRange b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Whether a layer's tensor of this name is the first of its upper half, the feed-forward part,
/// which its norm begins: from it on gradients are final in the middle of the layer's backward
/// pass.
[[nodiscard]] bool opens_upper_half(const ModelShape& shape, std::string_view name);

/// Tensors outside the layers, and what the names of those inside begin with.
struct ModelNames {
  std::string embedding, layers, final_norm, head;
};
[[nodiscard]] ModelNames model_names(const ModelShape& shape);

/// What of a model one pipeline stage holds. The default: all of it.
struct ModelPart {
  std::int64_t first_layer = 0;  // names count from here; their number is the shape's
  bool embedding = true;         // token (and position) embedding come first
  bool head = true;              // final norm and output head come last, but for a tied table
};

class ModelLayout {
 public:
  /// With a part: its tensors in the order and under the names of the whole model. A stage that has
  /// the head of a tied model but not the embedding holds the embedding's table, first, as its
  /// head.
  /// Of a shape with adapters: theirs alone, layer by layer, A before B, by PEFT's names; then
  /// there is nothing outside the layers.
  explicit ModelLayout(const ModelShape& shape, const ModelPart& part = {});

  [[nodiscard]] const ModelShape& shape() const { return shape_; }
  [[nodiscard]] const ModelPart& part() const { return part_; }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// Number of parameters.
  [[nodiscard]] std::int64_t elements() const { return tensors_.back().elements.end; }

  /// Tensors and elements of layer l, which lie together.
  [[nodiscard]] std::size_t first_tensor(std::int64_t layer) const;
  [[nodiscard]] std::size_t tensors_per_layer() const { return tensors_per_layer_; }
  [[nodiscard]] CanonicalRange layer_elements(std::int64_t layer) const;
  /// Of a layer's tensors the first of its upper half.
  [[nodiscard]] std::size_t upper_half() const { return upper_half_; }

  /// Indices of the tensors outside the layers.
  [[nodiscard]] std::size_t embedding() const { return 0; }  // REQUIRES: part().embedding
  [[nodiscard]] std::size_t positions() const;               // the same, and GPT-2
  [[nodiscard]] std::size_t final_norm_weight() const { return first_after_layers_; }
  [[nodiscard]] std::size_t final_norm_bias() const;  // REQUIRES: LayerNorm
  /// The output head: its own tensor, or the embedding when tied.
  [[nodiscard]] std::size_t head() const;

 private:
  void append_adapters();
  void append(std::string name, int layer, std::vector<std::int64_t> shape, TensorInit init);

  ModelShape shape_;
  ModelPart part_;
  std::vector<TensorInfo> tensors_;
  std::size_t first_in_layers_ = 0;
  std::size_t tensors_per_layer_ = 0;
  std::size_t upper_half_ = 0;
  std::size_t first_after_layers_ = 0;
};

/// The layout's tensors as an inner loop's parameters, in canonical order. values: (elements,) that
/// each takes its own from, borrowed; empty: the parameters have none.
[[nodiscard]] std::vector<Parameter> layout_parameters(const ModelLayout& layout,
                                                       std::span<float> values = {});

}  // namespace isthmus
