// SPDX-License-Identifier: Apache-2.0
#include "inner/model/cached_decoder.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/check.h"
#include "inner/model/gpt2_tensors.h"
#include "inner/model/llama_memory.h"
#include "inner/model/model_linear.h"
#include "kernels/activation.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"

namespace isthmus {
namespace {

constexpr std::int64_t kPromptRows = 256;  // of a prompt

/// Eight sums side by side, so that the compiler makes vectors of them.
float dot(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t kLanes = 8;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) lanes[0] += a[i] * b[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

/// scores (n,) become exp(scores - largest). RETURNS: their sum.
float exponentials(float* scores, std::int64_t n) {
  const float top = *std::max_element(scores, scores + n);
  float total = 0;
  for (std::int64_t s = 0; s < n; ++s) {
    scores[s] = std::exp(scores[s] - top);
    total += scores[s];
  }
  return total;
}

}  // namespace

struct CachedDecoder::Buffers {
  std::vector<float> keys, values;          // (layers, positions, key_width)
  std::vector<float> stream, middle;        // (rows, d_model): in and out of a layer's halves
  std::vector<float> normed, mean, rstd;    // of a norm
  std::vector<float> qkv, query, attended;  // (rows, qkv_width), (rows, query_width) twice
  std::vector<float> wide, activated;       // (rows, 2 d_ff), (rows, d_ff)
  std::vector<float> cosine, sine;          // (positions, head_dim / 2)

  Buffers(const ModelShape& s, std::int64_t positions) {
    const auto of = [](std::int64_t n) { return std::vector<float>(static_cast<std::size_t>(n)); };
    const std::int64_t rows = std::min(kPromptRows, positions);
    keys = of(s.layers * positions * s.key_width());
    values = of(s.layers * positions * s.key_width());
    stream = of(rows * s.d_model);
    middle = of(rows * s.d_model);
    normed = of(rows * s.d_model);
    mean = of(rows * s.heads);
    rstd = of(rows * s.heads);
    qkv = of(rows * s.qkv_width());
    query = of(rows * s.query_width());
    attended = of(rows * s.query_width());
    wide = of(rows * 2 * s.d_ff);
    activated = of(rows * s.d_ff);
    if (s.architecture != Architecture::kLlama) return;
    cosine = of(positions * s.head_dim / 2);
    sine = of(positions * s.head_dim / 2);
    kernels::rotary_table<float>(positions, s.head_dim, s.rope_theta, cosine.data(), sine.data());
  }
};

bool CachedDecoder::knows(const ModelShape& shape) {
  // Whatever a shape says beyond these fields is a block that this file does not have.
  const ModelShape known{.architecture = shape.architecture,
                         .layers = shape.layers,
                         .d_model = shape.d_model,
                         .heads = shape.heads,
                         .kv_heads = shape.kv_heads,
                         .head_dim = shape.head_dim,
                         .d_ff = shape.d_ff,
                         .vocab = shape.vocab,
                         .positions = shape.positions,
                         .longest = shape.longest,
                         .tied = shape.tied,
                         .qk_norm = shape.qk_norm,
                         .z_loss = shape.z_loss,
                         .rope_theta = shape.rope_theta,
                         .norm_eps = shape.norm_eps};
  const bool family = shape.architecture == Architecture::kLlama ||
                      (shape.architecture == Architecture::kGpt2 && !shape.qk_norm);
  return family && known == shape;
}

CachedDecoder::CachedDecoder(const ModelLayout& layout, Weights<float>& weights,
                             std::int64_t positions)
    : layout_(layout), shape_(layout.shape()), weights_(weights), positions_(positions) {
  ISTHMUS_CHECK(knows(shape_), shape_.d_model);
  ISTHMUS_CHECK(positions >= 1 && positions <= shape_.positions, positions, shape_.positions);
  buffers_ = std::make_unique<Buffers>(shape_, positions);
}

CachedDecoder::~CachedDecoder() = default;

void CachedDecoder::embed(const Rows& rows, const std::int32_t* ids) {
  const std::int64_t d = shape_.d_model;
  const float* const table = weights_.tensor(layout_.embedding());
  const float* const places = shape_.architecture == Architecture::kGpt2
                                  ? weights_.tensor(layout_.positions()) + seen_ * d
                                  : nullptr;
  for (std::int64_t row = 0; row < rows.count; ++row) {
    ISTHMUS_CHECK(ids[row] >= 0 && ids[row] < shape_.vocab, ids[row], shape_.vocab);
    float* const to = buffers_->stream.data() + row * d;
    std::copy_n(table + ids[row] * d, d, to);
    for (std::int64_t i = 0; places != nullptr && i < d; ++i) to[i] += places[row * d + i];
  }
}

/// Queries, keys and values lie in `qkv`, side by side: the queries go to `query`, the others to
/// their rows of the cache.
void CachedDecoder::keep_keys(const Rows& rows, std::int64_t layer) {
  const std::int64_t q = shape_.query_width(), k = shape_.key_width();
  const std::int64_t first = layer * positions_ + seen_;
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const float* const from = buffers_->qkv.data() + row * shape_.qkv_width();
    std::copy_n(from, q, buffers_->query.data() + row * q);
    std::copy_n(from + q, k, buffers_->keys.data() + (first + row) * k);
    std::copy_n(from + q + k, k, buffers_->values.data() + (first + row) * k);
  }
}

/// attended[t, h] = sum over s <= t of softmax_s(q . k / sqrt(head_dim)) v, over the cache.
void CachedDecoder::attend(const Rows& rows, std::int64_t layer) {
  const std::int64_t size = shape_.head_dim, width = shape_.key_width();
  const std::int64_t shared = shape_.heads / shape_.kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(size));
  const float* const keys = buffers_->keys.data() + layer * positions_ * width;
  const float* const values = buffers_->values.data() + layer * positions_ * width;
  rows.team.for_each(rows.count * shape_.heads, [&](std::int64_t index, int member) {
    const std::int64_t row = index / shape_.heads, h = index % shape_.heads;
    const std::int64_t tokens = seen_ + row + 1, column = h / shared * size;
    const float* const q = buffers_->query.data() + row * shape_.query_width() + h * size;
    float* const scores =
        rows.team.scratch<float>(kernels::Scratch::kOperation, positions_, member);
    for (std::int64_t s = 0; s < tokens; ++s) {
      scores[s] = scale * dot(q, keys + s * width + column, size);
    }
    const float total = exponentials(scores, tokens);
    float* const out = buffers_->attended.data() + row * shape_.query_width() + h * size;
    std::fill_n(out, size, 0.0F);
    for (std::int64_t s = 0; s < tokens; ++s) {
      const float weight = scores[s] / total;
      const float* const v = values + s * width + column;
      for (std::int64_t i = 0; i < size; ++i) out[i] += weight * v[i];
    }
  });
}

void CachedDecoder::llama_layer(const Rows& rows, std::int64_t layer) {
  Buffers& b = *buffers_;
  const LlamaTensors<const float> w(weights_.layer(layer), shape_);
  const std::int64_t d = shape_.d_model, size = shape_.head_dim;
  const auto norm = [&](std::int64_t count, std::int64_t channels, const float* x,
                        const float* weight, float* y) {
    kernels::rms_norm_forward<float>(rows.team, {.rows = count,
                                                 .channels = channels,
                                                 .eps = shape_.norm_eps,
                                                 .x = x,
                                                 .weight = weight,
                                                 .y = y,
                                                 .rstd = b.rstd.data()});
  };
  norm(rows.count, d, b.stream.data(), w.norm1_weight, b.normed.data());
  kernels::gemm(rows.team, linear<float>({rows.count, d, shape_.qkv_width()}, b.normed.data(),
                                         w.qkv_weight, b.qkv.data()));
  keep_keys(rows, layer);
  float* const keys = b.keys.data() + (layer * positions_ + seen_) * shape_.key_width();
  if (shape_.qk_norm) {
    norm(rows.count * shape_.heads, size, b.query.data(), w.q_norm_weight, b.query.data());
    norm(rows.count * shape_.kv_heads, size, keys, w.k_norm_weight, keys);
  }
  const auto rotate = [&](std::int64_t heads, float* x) {
    kernels::rotary_forward<float>(rows.team, 1, rows.count, heads, size,
                                   kernels::heads_in_rows<float>(x, rows.count, heads * size, size),
                                   b.cosine.data() + seen_ * size / 2,
                                   b.sine.data() + seen_ * size / 2);
  };
  rotate(shape_.heads, b.query.data());
  rotate(shape_.kv_heads, keys);
  attend(rows, layer);
  auto out = linear<float>({rows.count, shape_.query_width(), d}, b.attended.data(), w.out_weight,
                           b.middle.data());
  out.residual = b.stream.data();
  out.ldr = d;
  kernels::gemm(rows.team, out);

  norm(rows.count, d, b.middle.data(), w.norm2_weight, b.normed.data());
  kernels::gemm(rows.team, linear<float>({rows.count, d, 2 * shape_.d_ff}, b.normed.data(),
                                         w.gate_up_weight, b.wide.data()));
  kernels::swiglu_forward<float>(rows.team,
                                 {.rows = rows.count,
                                  .columns = shape_.d_ff,
                                  .gate = b.wide.data(),
                                  .up = b.wide.data() + shape_.d_ff,
                                  .ld_in = 2 * shape_.d_ff,
                                  .ld_out = shape_.d_ff},
                                 b.activated.data());
  auto down = linear<float>({rows.count, shape_.d_ff, d}, b.activated.data(), w.down_weight,
                            b.stream.data());
  down.residual = b.middle.data();
  down.ldr = d;
  kernels::gemm(rows.team, down);
}

void CachedDecoder::gpt2_layer(const Rows& rows, std::int64_t layer) {
  Buffers& b = *buffers_;
  const Gpt2Tensors<const float> w(weights_.layer(layer), shape_);
  const std::int64_t d = shape_.d_model;
  const auto norm = [&](const float* x, const float* weight, const float* bias) {
    kernels::layer_norm_forward<float>(rows.team, {.rows = rows.count,
                                                   .channels = d,
                                                   .eps = shape_.norm_eps,
                                                   .x = x,
                                                   .weight = weight,
                                                   .bias = bias,
                                                   .y = b.normed.data(),
                                                   .mean = b.mean.data(),
                                                   .rstd = b.rstd.data()});
  };
  norm(b.stream.data(), w.ln1_weight, w.ln1_bias);
  kernels::gemm(rows.team, conv1d<float>({rows.count, d, shape_.qkv_width()}, b.normed.data(),
                                         w.qkv_weight, w.qkv_bias, b.qkv.data()));
  keep_keys(rows, layer);
  attend(rows, layer);
  auto out = conv1d<float>({rows.count, shape_.query_width(), d}, b.attended.data(), w.out_weight,
                           w.out_bias, b.middle.data());
  out.residual = b.stream.data();
  out.ldr = d;
  kernels::gemm(rows.team, out);

  norm(b.middle.data(), w.ln2_weight, w.ln2_bias);
  auto up = conv1d<float>({rows.count, d, shape_.d_ff}, b.normed.data(), w.up_weight, w.up_bias,
                          b.wide.data());
  up.gelu_out = b.activated.data();
  kernels::gemm(rows.team, up);
  auto down = conv1d<float>({rows.count, shape_.d_ff, d}, b.activated.data(), w.down_weight,
                            w.down_bias, b.stream.data());
  down.residual = b.middle.data();
  down.ldr = d;
  kernels::gemm(rows.team, down);
}

/// Final norm and output head of the last row.
void CachedDecoder::head(const Rows& rows, float* logits) {
  Buffers& b = *buffers_;
  const std::int64_t d = shape_.d_model;
  kernels::NormForward<float> norm{.rows = 1,
                                   .channels = d,
                                   .eps = shape_.norm_eps,
                                   .x = b.stream.data() + (rows.count - 1) * d,
                                   .weight = weights_.tensor(layout_.final_norm_weight()),
                                   .y = b.normed.data(),
                                   .rstd = b.rstd.data()};
  if (shape_.architecture == Architecture::kGpt2) {
    norm.bias = weights_.tensor(layout_.final_norm_bias());
    norm.mean = b.mean.data();
    kernels::layer_norm_forward<float>(rows.team, norm);
  } else {
    kernels::rms_norm_forward<float>(rows.team, norm);
  }
  kernels::gemm(rows.team, linear<float>({1, d, shape_.vocab}, b.normed.data(),
                                         weights_.tensor(layout_.head()), logits));
}

void CachedDecoder::logits(kernels::ThreadTeam& team, std::span<const std::int32_t> tokens,
                           float* logits) {
  const auto all = static_cast<std::int64_t>(tokens.size());
  ISTHMUS_CHECK(all >= 1 && seen_ + all <= positions_, seen_, all, positions_);
  for (std::int64_t begin = 0; begin < all; begin += kPromptRows) {
    const Rows rows{team, std::min(kPromptRows, all - begin)};
    embed(rows, tokens.data() + begin);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      if (shape_.architecture == Architecture::kGpt2) {
        gpt2_layer(rows, layer);
      } else {
        llama_layer(rows, layer);
      }
    }
    seen_ += rows.count;
    if (begin + rows.count == all) head(rows, logits);
  }
}

}  // namespace isthmus
