// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cudnn/cudnn_layout.h"

#include <fmt/format.h>

namespace isthmus::cuda {

CudnnTensor cudnn_statistics(const AttentionShape& shape) {
  return {{shape.batch, shape.q_heads, shape.seq, 1}, {shape.q_heads * shape.seq, shape.seq, 1, 1}};
}

std::string cudnn_refusal(const AttentionShape& shape, int compute_major) {
  constexpr std::int64_t kStep = 8, kMost = 128, kMostOfHopper = 256;
  const std::int64_t most = compute_major == 9 ? kMostOfHopper : kMost;
  if (shape.kv_heads < 1 || shape.q_heads < 1 || shape.q_heads % shape.kv_heads != 0) {
    return fmt::format("{} query heads are no multiple of {} key heads", shape.q_heads,
                       shape.kv_heads);
  }
  if (shape.head_dim < 1 || shape.head_dim % kStep != 0 || shape.head_dim > most) {
    return fmt::format("head dimension {}; cuDNN takes multiples of {} up to {} on this device",
                       shape.head_dim, kStep, most);
  }
  if (shape.seq < 2) {
    return fmt::format("windows of {} token; cuDNN takes two or more", shape.seq);
  }
  constexpr std::int64_t kRows = 4;  // floats in 16 bytes
  if (shape.batch * shape.q_heads * shape.seq % kRows != 0) {
    return fmt::format(
        "{} windows of {} tokens with {} query heads: behind a float for each, cuDNN's workspace "
        "would begin on no multiple of 16 bytes; make their product a multiple of {}",
        shape.batch, shape.seq, shape.q_heads, kRows);
  }
  return "";
}

}  // namespace isthmus::cuda
