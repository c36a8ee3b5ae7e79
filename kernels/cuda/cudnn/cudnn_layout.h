// SPDX-License-Identifier: Apache-2.0
// What attention reads and writes, as cuDNN wants it described, and which shapes cuDNN takes. Pure:
// needs neither cuDNN nor a device.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/attention.h"

namespace isthmus::cuda {

using kernels::AttentionShape;
using kernels::HeadsView;

/// Batch, head, token and value of a head, in this order whatever the memory's is; strides count
/// elements.
struct CudnnTensor {
  std::array<std::int64_t, 4> sizes{}, strides{};
  bool operator==(const CudnnTensor&) const = default;
};

/// Where the values of attention lie; their data is not read. Gradients lie as their values do,
/// those of `out` as `out` does.
struct AttentionLayout {
  AttentionShape shape;
  HeadsView<const kernels::Bf16> q, k, v, out;
};

/// `heads` of the shape's windows as the view has them.
template <typename T>
[[nodiscard]] CudnnTensor cudnn_heads(const AttentionShape& shape, std::int64_t heads,
                                      const HeadsView<T>& view) {
  return {{shape.batch, heads, shape.seq, shape.head_dim},
          {view.batch_stride, view.head_stride, view.token_stride, 1}};
}

/// Log-sum-exps, (batch, q_heads, seq), natural logarithms: what cuDNN calls statistics.
[[nodiscard]] CudnnTensor cudnn_statistics(const AttentionShape& shape);

/// RETURNS: empty, or why cuDNN does not take the shape on a device of this compute capability:
/// head dimensions are multiples of 8 to 128, with 9.x to 256, and a window has two tokens or more.
/// Batch, query heads and tokens together are a multiple of 4: the frontend puts a float for each
/// before its backward engine's workspace, and whether that may lie anywhere is not known.
[[nodiscard]] std::string cudnn_refusal(const AttentionShape& shape, int compute_major);

}  // namespace isthmus::cuda
