// SPDX-License-Identifier: Apache-2.0
// What the blocks of a device share: the shape of their attention, and where the stream's gradient
// is read.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "inner/model_shape.h"
#include "isthmus/errors.h"
#include "kernels/cuda/attention.h"

namespace isthmus {

[[nodiscard]] inline kernels::AttentionShape cuda_attention_shape(const ModelShape& s,
                                                                  std::int64_t sequences,
                                                                  std::int64_t length) {
  return {.batch = sequences,
          .seq = length,
          .q_heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .scale = 1 / std::sqrt(static_cast<double>(s.head_dim))};
}

/// THROWS: ConfigError where the attention of the calling thread's device does not take such heads.
template <typename T>
void check_cuda_attention(const ModelShape& s) {
  const std::string refusal = cuda::attention_refusal<T>(cuda_attention_shape(s, 1, s.positions),
                                                         cuda::shared_bytes_of_block());
  if (refusal.empty()) return;
  throw ConfigError(
      fmt::format("model.head_dim = {} ({} heads, {}): {}; change it, or train with --device cpu",
                  s.head_dim, s.heads, std::is_same_v<T, float> ? "fp32" : "bf16", refusal));
}

/// The gradient of the stream as products read it: rounded to T, or itself where T is float.
template <typename T>
[[nodiscard]] const T* stream_gradient(const float* d_stream, const T* rounded) {
  if constexpr (std::is_same_v<T, float>) {
    return d_stream;
  } else {
    return rounded;
  }
}

}  // namespace isthmus
