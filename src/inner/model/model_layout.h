// SPDX-License-Identifier: Apache-2.0
// The canonical layout: every tensor of a model, with the names and storage order of Hugging Face,
// concatenated without gaps. Element ids, initial weights, fragments, codec tiles and checkpoints
// refer to it; an export is a copy. GPT-2's linear weights are (in, out) as its Conv1D stores them,
// Llama's (out, in). Immutable; safe to share.
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

/// Initial values of a tensor.
enum class TensorInit {
  kZero,      // biases
  kOne,       // norm weights
  kNormal,    // normal with mean 0 and standard deviation 0.02
  kResidual,  // the same with 0.02 / sqrt(2 L): GPT-2's projections into the residual stream
  kUniform,   // U(-1 / sqrt(in), 1 / sqrt(in)) of an (out, in) matrix: an adapter's A
};

/// Initial norm weights: kZero with a norm_weight_offset of 1, else kOne.
[[nodiscard]] inline TensorInit norm_init(const ModelShape& shape) {
  return shape.family.norm_weight_offset == 1 ? TensorInit::kZero : TensorInit::kOne;
}

struct TensorInfo {
  std::string name;
  int layer = -1;                   // number in the whole model, or kNoLayer
  std::vector<std::int64_t> shape;  // row-major
  CanonicalRange elements;
  TensorInit init = TensorInit::kZero;
  /// True if weight decay applies.
  [[nodiscard]] bool decay() const { return shape.size() >= 2; }
  /// True for a matrix inside a layer, an adapter's too: not embedding, positions or head.
  [[nodiscard]] bool hidden_matrix() const { return layer >= 0 && shape.size() == 2; }
};

/// Intersection of two ranges; possibly empty, at an unspecified place.
[[nodiscard]] inline CanonicalRange common(CanonicalRange a, CanonicalRange b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// True if a layer's tensor of this name is the first of its upper half, the feed-forward part with
/// its norm. The gradients from this tensor on are final in the middle of the layer's backward
/// pass.
[[nodiscard]] bool opens_upper_half(const ModelShape& shape, std::string_view name);

/// Names of tensors outside the layers, and the prefix of those inside.
struct ModelNames {
  std::string embedding, layers, final_norm, head;
};
[[nodiscard]] ModelNames model_names(const ModelShape& shape);

/// The part of a model that one pipeline stage holds. The default: all.
struct ModelPart {
  std::int64_t first_layer = 0;  // number of the first layer in names; the shape gives the number
                                 // of layers
  bool embedding = true;         // starts with the token (and position) embedding
  bool head = true;              // ends with final norm and output head (a tied head is the table
                                 // instead)
};

class ModelLayout {
 public:
  /// With a part: its tensors in the order and with the names of the whole model. A stage with the
  /// head of a tied model but without the embedding holds the embedding's table, as its first
  /// tensor and head. For a shape with adapters: only the adapters, layer by layer, A before B,
  /// with PEFT's names; then there are no tensors outside the layers.
  explicit ModelLayout(const ModelShape& shape, const ModelPart& part = {});

  [[nodiscard]] const ModelShape& shape() const { return shape_; }
  [[nodiscard]] const ModelPart& part() const { return part_; }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// Number of parameters.
  [[nodiscard]] std::int64_t elements() const { return tensors_.back().elements.end; }

  /// Tensors and elements of the part's layer l, from 0; they are contiguous.
  [[nodiscard]] std::size_t first_tensor(std::int64_t layer) const;
  [[nodiscard]] std::size_t tensors_per_layer() const { return tensors_per_layer_; }
  [[nodiscard]] CanonicalRange layer_elements(std::int64_t layer) const;
  /// Index of the first tensor of a layer's upper half.
  [[nodiscard]] std::size_t upper_half() const { return upper_half_; }

  /// Indices of the tensors outside the layers. REQUIRES: a layout without adapters; part().head
  /// for those behind the layers.
  [[nodiscard]] std::size_t embedding() const { return 0; }  // REQUIRES: part().embedding
  [[nodiscard]] std::size_t positions() const;               // also REQUIRES: GPT-2
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

/// The layout's tensors as an inner loop's parameters, in canonical order. values: (elements,),
/// borrowed, of which each parameter gets its part; empty: the parameters have no values.
[[nodiscard]] std::vector<Parameter> layout_parameters(const ModelLayout& layout,
                                                       std::span<float> values = {});

}  // namespace isthmus
