// SPDX-License-Identifier: Apache-2.0
#include "plan/mesh_share.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "inner/mesh/mesh_rules.h"
#include "inner/mesh/rank_layout.h"
#include "inner/model/rope.h"

namespace isthmus::plan {
namespace {
constexpr std::int64_t kBf16Bytes = 2;

/// Norms, biases of closing products and positions are whole on every rank; the rest is split.
bool is_whole(const TensorInfo& tensor) {
  constexpr std::array<std::string_view, 19> kWhole = {"ln_1.weight",
                                                       "ln_1.bias",
                                                       "ln_2.weight",
                                                       "ln_2.bias",
                                                       "ln_f.weight",
                                                       "ln_f.bias",
                                                       "attn.c_proj.bias",
                                                       "mlp.c_proj.bias",
                                                       "wpe.weight",
                                                       "layernorm.weight",
                                                       "layernorm.bias",
                                                       "_norm.weight",
                                                       "_norm.bias",
                                                       "model.norm.weight",
                                                       "o_proj.bias",
                                                       "down_proj.bias",
                                                       "dense.bias",
                                                       "dense_4h_to_h.bias",
                                                       "final_layer_norm.weight"};
  return std::any_of(kWhole.begin(), kWhole.end(),
                     [&](std::string_view end) { return tensor.name.ends_with(end); });
}

TensorShare share_of(const ModelLayout& layout, std::size_t index, const MeshChoice& choice) {
  const TensorInfo& tensor = layout.tensors()[index];
  const int tp = choice.tp;
  TensorShare share{
      .tensor = &tensor, .elements = tensor.elements.size(), .whole = is_whole(tensor)};
  if (share.whole) {
    share.partial =
        tp > 1 && (is_head_norm(tensor.name) || (choice.sequence_parallel && is_norm(tensor.name)));
    return share;
  }
  if (is_of_key_heads(tensor.name)) {
    share.copies = key_copies(layout.shape(), tp);
    share.elements = tensor.elements.size() / (tp / share.copies);
    return share;
  }
  if (tensor.layer == kNoLayer) {  // rows of the vocabulary, which need not divide
    share.elements = (tensor.shape[0] + tp - 1) / tp * tensor.shape[1];
  } else {
    share.elements = tensor.elements.size() / tp;
  }
  return share;
}

/// Values of a kind, and how they add up with the gaps of an arena.
class Bytes {
 public:
  void take(std::int64_t count, std::int64_t size) {
    constexpr std::int64_t kStep = 64;
    bytes_ += (count * size + kStep - 1) / kStep * kStep;
  }
  [[nodiscard]] std::int64_t get() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

/// Columns of a rank's key heads.
std::int64_t key_width(const ModelShape& s, int tp) {
  return s.key_width() / (tp / key_copies(s, tp));
}

/// Whether a layer makes its activation's output again: GELU alone has other bits when it is made
/// from what was rounded.
bool activates_again(const ModelShape& s, const MeshChoice& choice) {
  return choice.recompute == Recompute::kSelective &&
         !(choice.bf16 && s.architecture == Architecture::kGpt2);
}

/// What a layer keeps; `own` rows of the residual stream and norms, all `rows` between.
std::int64_t layer_bytes(const ModelShape& s, const MeshChoice& choice, std::int64_t rows,
                         std::int64_t own) {
  const int tp = choice.tp;
  const std::int64_t wide = wide_bytes(choice);
  const std::int64_t query = s.query_width() / tp, key = key_width(s, tp);
  const std::int64_t qkv = query + 2 * key, ff = s.d_ff / tp;
  const bool gpt2 = s.architecture == Architecture::kGpt2;
  const std::int64_t normed = choice.recompute == Recompute::kSelective ? 0 : own;
  const std::int64_t activated = activates_again(s, choice) ? 0 : rows;
  Bytes b;
  for (int norm = 0; norm < 2; ++norm) {
    b.take(own, kFloatBytes);                      // 1 / deviation
    if (s.layer_norm()) b.take(own, kFloatBytes);  // mean
    b.take(normed * s.d_model, wide);              // its output
  }
  b.take(rows * qkv, wide);
  b.take(rows * query, wide);  // attended
  b.take(rows * s.heads / tp, kFloatBytes);
  b.take(own * s.d_model, kFloatBytes);  // the stream between attention and feed-forward
  if (gpt2) {
    b.take(rows * ff, wide);
    b.take(activated * std::max(ff, qkv - ff), wide);
    return b.get();
  }
  b.take(rows * std::max(s.up_width() / tp, qkv), wide);
  b.take(activated * std::max(ff, query), wide);
  if (s.qk_norm) {
    b.take(rows * query, wide);
    b.take(rows * key, wide);
    b.take(rows * (s.family.wide_qk_norm ? 1 : s.heads / tp), kFloatBytes);
    b.take(rows * (s.family.wide_qk_norm ? 1 : key / s.head_dim), kFloatBytes);
  }
  if (s.norms_after()) {  // what they norm, and 1 / deviation
    for (int norm = 0; norm < 2; ++norm) {
      b.take(own * s.d_model, kFloatBytes);
      b.take(own, kFloatBytes);
    }
  }
  return b.get();
}

/// Of what is made again, and of the backward pass of inputs alone, which leaves in place what
/// weight gradients read.
std::int64_t scratch_bytes(const ModelShape& s, const MeshChoice& choice, std::int64_t rows) {
  const int tp = choice.tp;
  const std::int64_t wide = wide_bytes(choice);
  const bool split = choice.schedule == PipelineKind::kZbH1;
  const bool again = activates_again(s, choice);
  const std::int64_t query = s.query_width() / tp, key = key_width(s, tp);
  const std::int64_t qkv = query + 2 * key, ff = s.d_ff / tp;
  Bytes b;
  if (s.architecture == Architecture::kGpt2) {
    if (split || again) b.take(rows * std::max(ff, qkv), wide);
    return b.get();
  }
  if (s.qk_norm) {
    b.take(rows * query, wide);
    b.take(rows * key, wide);
    b.take(rows * query, wide);
  }
  if (split || again) b.take(rows * std::max(ff, query), wide);
  if (split) b.take(rows * qkv, wide);
  return b.get();
}

}  // namespace

std::int64_t elements_of(const StageShare& stage) {
  std::int64_t elements = 0;
  for (const TensorShare& tensor : stage.tensors) elements += tensor.elements;
  return elements;
}

std::int64_t micro_batch_rows(const MeshWorkload& workload, const MeshChoice& choice) {
  return workload.sequences / choice.dp / choice.micro_batches * workload.context;
}

EmbeddingRowsSize embedding_rows_of(const MeshWorkload& workload, const MeshChoice& choice) {
  const std::int64_t rows = micro_batch_rows(workload, choice);
  return {.table = (workload.shape.vocab + choice.tp - 1) / choice.tp,
          .channels = workload.shape.d_model,
          .step = rows * choice.micro_batches,
          .micro_batch = rows};
}

std::int64_t wide_bytes(const MeshChoice& choice) { return choice.bf16 ? kBf16Bytes : kFloatBytes; }

std::int64_t arena_bytes(const ModelShape& s, const MeshChoice& choice, std::int64_t layers,
                         std::int64_t rows) {
  const std::int64_t own = choice.sequence_parallel ? rows / choice.tp : rows;
  const std::int64_t kept = choice.recompute == Recompute::kFull ? 1 : layers;
  Bytes b;
  for (std::int64_t i = 0; i <= layers; ++i) b.take(own * s.d_model, kFloatBytes);
  for (std::int64_t i = 0; i < kept; ++i) b.take(layer_bytes(s, choice, rows, own), 1);
  b.take(own * s.d_model, kFloatBytes);  // the gradient of the stream
  b.take(own, kFloatBytes);              // the final norm's statistics
  b.take(own, kFloatBytes);
  if (s.architecture == Architecture::kLlama) b.take(rope_table_values(s), kFloatBytes);
  return b.get();
}

std::int64_t working_bytes(const ModelShape& s, const MeshChoice& choice, std::int64_t rows) {
  const std::int64_t own = choice.sequence_parallel ? rows / choice.tp : rows;
  Bytes b;
  b.take(own * s.d_model, kFloatBytes);
  b.take(scratch_bytes(s, choice, rows), 1);
  return b.get();
}

MeshShare mesh_share(const ModelLayout& layout, const MeshChoice& choice, int pipeline_rank) {
  const ModelShape& shape = layout.shape();
  const int stages = choice.pp * choice.virtual_stages;
  const std::vector<LayerSpan> spans = stage_layers(shape.layers, stages, head_layers(shape));
  MeshShare result;
  for (int chunk = 0; chunk < choice.virtual_stages; ++chunk) {
    const int index = chunk * choice.pp + pipeline_rank;
    StageShare stage;
    stage.layers = spans[static_cast<std::size_t>(index)];
    stage.first = index == 0;
    stage.last = index + 1 == stages;
    const auto add = [&](std::size_t tensor, bool multiplies) {
      stage.tensors.push_back(share_of(layout, tensor, choice));
      stage.tensors.back().multiplies = multiplies;
    };
    const bool both = stage.first && stage.last;
    const bool gpt2 = shape.architecture == Architecture::kGpt2;
    const bool tied_head = shape.tied && stage.last;
    if (stage.first || tied_head) add(layout.embedding(), tied_head);
    if (stage.first && gpt2) add(layout.positions(), false);
    for (std::int64_t layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
      const std::size_t first = layout.first_tensor(layer);
      for (std::size_t i = 0; i < layout.tensors_per_layer(); ++i) add(first + i, false);
    }
    if (stage.last) {
      add(layout.final_norm_weight(), true);
      if (shape.layer_norm()) add(layout.final_norm_bias(), true);
      if (!shape.tied) add(layout.head(), true);
    }
    if (shape.tied && !both && (stage.first || stage.last)) {
      result.tied_copy = share_of(layout, layout.embedding(), choice).elements;
    }
    result.stages.push_back(std::move(stage));
  }
  return result;
}

}  // namespace isthmus::plan
