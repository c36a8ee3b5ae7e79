// SPDX-License-Identifier: Apache-2.0
// The choice of kernels for a shape, and a pass over every row that the backward passes need: 2
// head_dim values read and 8 bytes written, bound by device memory.
#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/simt.h"

namespace isthmus::cuda {
namespace {

using kernels::Bf16;

constexpr int kSumThreads = 256;

/// kWidth values that are read at once.
template <typename T, int kWidth>
struct alignas(kWidth * sizeof(T)) Values {
  T x[kWidth];
};
/// Lanes that share a row: 8 times 16 bytes, or a warp for single values.
template <int kWidth>
inline constexpr int kRowLanes = kWidth == 1 ? kWarp : 8;

// Neighbouring rows are of neighbouring heads, which lie next to one another.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kSumThreads)
    row_sums_kernel(AttentionShape shape, HeadsView<const T> out, HeadsView<const T> d_out,
                    const float* lse, RowSums rows, float* row_lse, float* row_delta) {
  constexpr int kLanes = kRowLanes<kWidth>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t index =
      std::int64_t{blockIdx.x} * (kSumThreads / kLanes) + static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t h = index % shape.q_heads;
  const std::int64_t t = index / shape.q_heads % rows.padded;
  const std::int64_t b = index / (shape.q_heads * rows.padded);
  const bool inside = b < shape.batch && t < shape.seq;
  float sum = 0;
  if (inside) {
    const T* const x = out.at(b, t, h);
    const T* const y = d_out.at(b, t, h);
    for (std::int64_t i = lane * kWidth; i < shape.head_dim; i += kLanes * kWidth) {
      using Part = Values<T, kWidth>;
      const Part of_x = *reinterpret_cast<const Part*>(x + i);
      const Part of_y = *reinterpret_cast<const Part*>(y + i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        sum += static_cast<float>(of_x.x[j]) * static_cast<float>(of_y.x[j]);
      }
    }
  }
#pragma unroll
  for (int by = kLanes / 2; by > 0; by /= 2) sum += __shfl_xor_sync(kAllLanes, sum, by);
  if (lane != 0 || b >= shape.batch) return;
  const std::int64_t head = b * shape.q_heads + h;
  row_lse[head * rows.padded + t] = inside ? lse[head * shape.seq + t] * kLog2E : INFINITY;
  row_delta[head * rows.padded + t] = sum;
}

template <typename T, int kWidth>
void queue_row_sums(Stream& stream, const AttentionShape& shape, const AttentionBackward<T>& a,
                    const RowSums& rows, float* row_lse, float* row_delta) {
  constexpr std::int64_t kRowsOfBlock = kSumThreads / kRowLanes<kWidth>;
  const std::int64_t count = shape.batch * shape.q_heads * rows.padded;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>((count + kRowsOfBlock - 1) / kRowsOfBlock)),
          .threads = dim3(kSumThreads)},
         row_sums_kernel<T, kWidth>, shape, a.out, a.d_out, a.lse, rows, row_lse, row_delta);
}

bool empty(const AttentionShape& shape) { return shape.batch == 0 || shape.seq == 0; }

std::int64_t padded_seq(const AttentionShape& shape) {
  return (shape.seq + kRowPadding - 1) / kRowPadding * kRowPadding;
}

constexpr std::int64_t kVectorBytes = 16;

/// Whether a row of every head begins at a multiple of 16 bytes.
template <typename... T>
bool aligned(const HeadsView<T>&... views) {
  const auto one = [](const auto& view) {
    const std::int64_t strides = view.batch_stride | view.token_stride | view.head_stride;
    return reinterpret_cast<std::uintptr_t>(view.data) % kVectorBytes == 0 &&
           strides % (kVectorBytes / static_cast<std::int64_t>(sizeof(Bf16))) == 0;
  };
  return (one(views) && ...);
}

bool tensor_cores_take(const AttentionShape& shape) {
  return shape.head_dim % 8 == 0 && shape.head_dim <= kTensorHeadDim;
}

}  // namespace

template <typename T>
std::string attention_refusal(const AttentionShape& shape, std::size_t shared_bytes) {
  if (shape.kv_heads < 1 || shape.q_heads < 1 || shape.q_heads % shape.kv_heads != 0) {
    return std::to_string(shape.q_heads) + " query heads are no multiple of " +
           std::to_string(shape.kv_heads) + " key heads";
  }
  if (!(shape.scale > 0)) {
    return "attention's scale is " + std::to_string(shape.scale) + "; it must be above 0";
  }
  if (shape.head_dim < 1 || shape.head_dim > kSimtHeadDim) {
    return "head dimension " + std::to_string(shape.head_dim) + "; 1 to " +
           std::to_string(kSimtHeadDim) + " are possible on a device";
  }
  const bool tensor_cores = std::is_same_v<T, Bf16> && tensor_cores_take(shape);
  const std::size_t needed =
      tensor_cores ? std::size_t{kTensorSharedBytes} : simt_shared_bytes(shape.head_dim);
  if (needed > shared_bytes) {
    return "head dimension " + std::to_string(shape.head_dim) + ": a block needs " +
           std::to_string(needed) + " bytes of shared memory, this device has " +
           std::to_string(shared_bytes) + "; up to " + std::to_string(kTensorHeadDim) +
           " are possible on it";
  }
  return "";
}

template <typename T>
void attention_forward(Stream& stream, const AttentionShape& shape, HeadsView<const T> q,
                       HeadsView<const T> k, HeadsView<const T> v, HeadsView<T> out, float* lse) {
  if (empty(shape)) return;
  if constexpr (std::is_same_v<T, Bf16>) {
    if (tensor_cores_take(shape) && aligned(q, k, v, out)) {
      tensor_attention_forward(stream, shape, q, k, v, out, lse);
      return;
    }
  }
  simt_attention_forward(stream, shape, q, k, v, out, lse);
}

std::size_t attention_backward_scratch(const AttentionShape& shape) {
  return static_cast<std::size_t>(2 * shape.batch * shape.q_heads * padded_seq(shape));
}

template <typename T>
void attention_backward(Stream& stream, const AttentionShape& shape, const AttentionBackward<T>& a,
                        float* scratch) {
  if (empty(shape)) return;
  const std::int64_t padded = padded_seq(shape);
  float* const row_delta = scratch + shape.batch * shape.q_heads * padded;
  const RowSums rows{.lse = scratch, .delta = row_delta, .padded = padded};
  if constexpr (std::is_same_v<T, Bf16>) {
    if (tensor_cores_take(shape) && aligned(a.q, a.k, a.v, a.out, a.d_out, a.d_q, a.d_k, a.d_v) &&
        reinterpret_cast<std::uintptr_t>(scratch) % kVectorBytes == 0) {
      queue_row_sums<T, 8>(stream, shape, a, rows, scratch, row_delta);
      tensor_attention_backward(stream, shape, a, rows);
      return;
    }
  }
  queue_row_sums<T, 1>(stream, shape, a, rows, scratch, row_delta);
  simt_attention_backward(stream, shape, a, rows);
}

#define ISTHMUS_INSTANTIATE(T)                                                                   \
  template std::string attention_refusal<T>(const AttentionShape&, std::size_t);                 \
  template void attention_forward(Stream&, const AttentionShape&, HeadsView<const T>,            \
                                  HeadsView<const T>, HeadsView<const T>, HeadsView<T>, float*); \
  template void attention_backward(Stream&, const AttentionShape&, const AttentionBackward<T>&,  \
                                   float*);
ISTHMUS_INSTANTIATE(float)
ISTHMUS_INSTANTIATE(Bf16)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::cuda
