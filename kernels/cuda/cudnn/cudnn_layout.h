// SPDX-License-Identifier: Apache-2.0
// The operands of attention as cuDNN describes them, and the shapes that cuDNN supports. Pure:
// needs neither cuDNN nor a device.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/attention.h"

namespace isthmus::cuda {

using kernels::AttentionShape;
using kernels::HeadsView;

/// Batch, head, token and value of a head, in this order for every memory layout; strides count
/// elements.
struct CudnnTensor {
  std::array<std::int64_t, 4> sizes{}, strides{};
  bool operator==(const CudnnTensor&) const = default;
};

/// Layout of attention's operands; their data is not read. Gradients have the layout of their
/// values, that of `out` the layout of `out`.
struct AttentionLayout {
  AttentionShape shape;
  HeadsView<const kernels::Bf16> q, k, v, out;
};

/// Layout of `heads` heads of the shape's windows in the view.
template <typename T>
[[nodiscard]] CudnnTensor cudnn_heads(const AttentionShape& shape, std::int64_t heads,
                                      const HeadsView<T>& view) {
  return {{shape.batch, heads, shape.seq, shape.head_dim},
          {view.batch_stride, view.head_stride, view.token_stride, 1}};
}

/// Log-sum-exps, (batch, q_heads, seq), natural logarithms: what cuDNN calls statistics.
[[nodiscard]] CudnnTensor cudnn_statistics(const AttentionShape& shape);

/// RETURNS: empty, or why cuDNN does not support the shape on a device of this compute capability.
/// Head dimensions must be multiples of 8 up to 128, with 9.x up to 256, and a window must have at
/// least two tokens. batch * q_heads * tokens must be a multiple of 4: the frontend stores a float
/// for each before its backward engine's workspace, and it is unknown if that workspace may start
/// at any address.
[[nodiscard]] std::string cudnn_refusal(const AttentionShape& shape, int compute_major);

}  // namespace isthmus::cuda
