// SPDX-License-Identifier: Apache-2.0
// Functions that the blocks of a device share: attention, by our own kernels or by cuDNN, and the
// rounded gradient of the stream.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "inner/cuda/cuda_block.h"
#include "inner/model/model_shape.h"
#include "isthmus/errors.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cudnn/cudnn_layout.h"

namespace isthmus {

[[nodiscard]] inline kernels::AttentionShape cuda_attention_shape(const ModelShape& s,
                                                                  std::int64_t sequences,
                                                                  std::int64_t length) {
  return {.batch = sequences,
          .seq = length,
          .q_heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .scale = s.attention_scale()};
}

/// Layout of attention's operands in every layer of such a model; no data.
[[nodiscard]] inline cuda::AttentionLayout cuda_attention_layout(const ModelShape& s,
                                                                 std::int64_t sequences,
                                                                 std::int64_t length) {
  const auto in_rows = [&](std::int64_t row) {
    return kernels::heads_in_rows<const kernels::Bf16>(nullptr, length, row, s.head_dim);
  };
  return {.shape = cuda_attention_shape(s, sequences, length),
          .q = in_rows(s.qk_norm ? s.query_width() : s.qkv_width()),
          .k = in_rows(s.qk_norm ? s.key_width() : s.qkv_width()),
          .v = in_rows(s.qkv_width()),
          .out = in_rows(s.query_width())};
}

/// As cuda::attention_forward, by cuDNN if the pass has it for these windows.
template <typename T>
void queue_attention(const CudaPass& pass, const ModelShape& s, kernels::HeadsView<const T> q,
                     kernels::HeadsView<const T> k, kernels::HeadsView<const T> v,
                     kernels::HeadsView<T> out, float* lse) {
  const kernels::AttentionShape shape = cuda_attention_shape(s, pass.sequences, pass.length);
  if constexpr (std::is_same_v<T, kernels::Bf16>) {
    if (pass.cudnn != nullptr && pass.cudnn->takes(shape)) {
      pass.cudnn->forward(pass.stream, q, k, v, out, lse, pass.scratch);
      return;
    }
  }
  cuda::attention_forward<T>(pass.stream, shape, q, k, v, out, lse);
}
template <typename T>
void queue_attention_backward(const CudaPass& pass, const ModelShape& s,
                              const kernels::AttentionBackward<T>& a) {
  const kernels::AttentionShape shape = cuda_attention_shape(s, pass.sequences, pass.length);
  if constexpr (std::is_same_v<T, kernels::Bf16>) {
    if (pass.cudnn != nullptr && pass.cudnn->takes(shape)) {
      pass.cudnn->backward(pass.stream, a, pass.scratch);
      return;
    }
  }
  cuda::attention_backward<T>(pass.stream, shape, a, pass.scratch);
}

/// THROWS: ConfigError when the attention of the calling thread's device does not support such
/// heads.
template <typename T>
void check_cuda_attention(const ModelShape& s) {
  const std::string refusal = cuda::attention_refusal<T>(cuda_attention_shape(s, 1, s.longest),
                                                         cuda::shared_bytes_of_block());
  if (refusal.empty()) return;
  throw ConfigError(
      fmt::format("model.head_dim = {} ({} heads, {}): {}; change it, or train with --device cpu",
                  s.head_dim, s.heads, std::is_same_v<T, float> ? "fp32" : "bf16", refusal));
}

/// The gradient of the stream as matrix products read it: rounded to T, or itself if T is float.
template <typename T>
[[nodiscard]] const T* stream_gradient(const float* d_stream, const T* rounded) {
  if constexpr (std::is_same_v<T, float>) {
    return d_stream;
  } else {
    return rounded;
  }
}

}  // namespace isthmus
