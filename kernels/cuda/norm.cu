// SPDX-License-Identifier: Apache-2.0
// A row is held in the registers of one or several warps, so memory is passed over once. Bytes
// moved an element with Bf16: forward 12 (6 without a branch), backward 16 (14); of heads 4 and 6.
#include <string>

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/norm_rows.h"
#include "kernels/cuda/pack.h"

namespace isthmus::cuda {
namespace {

constexpr int kMostThreads = kMostRowWarps * kWarp;
// Blocks of a backward pass, each with its own sums of the weight gradients: two for each of the
// 132 multiprocessors of an H100, the same number everywhere so that the sums are too.
constexpr std::int64_t kBackwardBlocks = 264;

/// S: the type of the normalised values; T: the type of the results.
template <typename S, typename T>
struct Forward {
  RowShape shape;
  NormedHeads in;
  std::int64_t rows = 0;
  float eps = 0;
  bool centred = false;
  const S* x = nullptr;
  const T* branch = nullptr;
  float* s = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  T* y = nullptr;
  float* mean = nullptr;
  float* rstd = nullptr;
};

template <typename S, typename T, int kWidth, int kHeld>
__global__ void __launch_bounds__(kMostThreads, 1) forward_kernel(Forward<S, T> f) {
  ISTHMUS_SHARED(float2, scratch, [2][kMostRowWarps]);
  const Place me = place_in(f.shape);
  const std::int64_t channels = f.in.channels;
  const std::int64_t r = std::int64_t{blockIdx.x} * f.shape.groups + me.group;
  const bool inside = r < f.rows;
  const std::int64_t from = inside ? begin_of(f.in, r) : 0;
  const std::int64_t to = r * channels;
  float v[kHeld][kWidth];
  float sum = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t c = (std::int64_t{h} * me.threads + me.thread) * kWidth;
    if (inside && c < channels) {
      load_pack<kWidth>(f.x + from + c, v[h]);
      if (f.branch != nullptr) {
        float added[kWidth];
        load_pack<kWidth>(f.branch + to + c, added);
        for (int i = 0; i < kWidth; ++i) v[h][i] += added[i];
        store_pack<kWidth>(f.s + to + c, v[h]);
      }
    } else {
      for (int i = 0; i < kWidth; ++i) v[h][i] = 0;
    }
    for (int i = 0; i < kWidth; ++i) sum += v[h][i];
  }
  const float n = static_cast<float>(channels);
  const float mean = f.centred ? row_sums(f.shape, sum, 0, scratch[0]).x / n : 0.f;
  float squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t c = (std::int64_t{h} * me.threads + me.thread) * kWidth;
    if (c >= channels) break;
    for (int i = 0; i < kWidth; ++i) squares += (v[h][i] - mean) * (v[h][i] - mean);
  }
  const float rstd = 1 / sqrtf(row_sums(f.shape, squares, 0, scratch[1]).x / n + f.eps);
  if (!inside) return;
  if (me.thread == 0) {
    if (f.centred) f.mean[r] = mean;
    f.rstd[r] = rstd;
  }
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t c = (std::int64_t{h} * me.threads + me.thread) * kWidth;
    if (c >= channels) break;
    float weight[kWidth], y[kWidth];
    load_pack<kWidth>(f.weight + c, weight);
    for (int i = 0; i < kWidth; ++i) y[i] = (v[h][i] - mean) * rstd * weight[i];
    if (f.bias != nullptr) {
      load_pack<kWidth>(f.bias + c, weight);
      for (int i = 0; i < kWidth; ++i) y[i] += weight[i];
    }
    store_pack<kWidth>(f.y + to + c, y);
  }
}

template <typename S, typename T>
struct Backward {
  RowShape shape;
  NormedHeads in;  // of s, and of ds where there is no d_stream
  std::int64_t rows = 0;
  bool centred = false;
  const T* dy = nullptr;
  const S* s = nullptr;
  const float* weight = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  float* d_stream = nullptr;  // null: the gradient itself is stored in d_branch
  T* d_branch = nullptr;
  bool biased = false;
  float* partial = nullptr;  // (blocks, 2, channels): sums of the gradients of weight and bias
};

// With n = (s - mean) rstd and g = dy weight:  ds = rstd (g - mean(g) - n mean(g n)); RMSNorm has
// no mean(g) term.
template <typename S, typename T, int kWidth, int kHeld>
__global__ void __launch_bounds__(kMostThreads, 1) backward_kernel(Backward<S, T> b) {
  ISTHMUS_SHARED(float2, scratch, [2][kMostRowWarps]);
  ISTHMUS_DYNAMIC_SHARED(float, shared);
  const Place me = place_in(b.shape);
  const std::int64_t channels = b.in.channels;
  float d_weight[kHeld][kWidth] = {}, d_bias[kHeld][kWidth] = {};
  int parity = 0;
  for (std::int64_t first = std::int64_t{blockIdx.x} * b.shape.groups; first < b.rows;
       first += std::int64_t{gridDim.x} * b.shape.groups) {
    const std::int64_t r = first + me.group;
    const bool inside = r < b.rows;
    const std::int64_t from = inside ? begin_of(b.in, r) : 0;
    const std::int64_t at = r * channels;
    const float mean = inside && b.centred ? b.mean[r] : 0.f;
    const float rstd = inside ? b.rstd[r] : 0.f;
    float normal[kHeld][kWidth] = {}, g[kHeld][kWidth] = {}, d[kHeld][kWidth] = {};
    float sum_g = 0, sum_gn = 0;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const std::int64_t c = (std::int64_t{h} * me.threads + me.thread) * kWidth;
      if (!inside || c >= channels) continue;
      load_pack<kWidth>(b.dy + at + c, g[h]);
      load_pack<kWidth>(b.s + from + c, normal[h]);
      if (b.d_stream != nullptr) load_pack<kWidth>(b.d_stream + at + c, d[h]);
    }
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const std::int64_t c = (std::int64_t{h} * me.threads + me.thread) * kWidth;
      if (!inside || c >= channels) continue;
      float weight[kWidth];
      load_pack<kWidth>(b.weight + c, weight);
      for (int i = 0; i < kWidth; ++i) {
        normal[h][i] = (normal[h][i] - mean) * rstd;
        d_weight[h][i] += g[h][i] * normal[h][i];
        d_bias[h][i] += g[h][i];
        g[h][i] *= weight[i];
        sum_g += g[h][i];
        sum_gn += g[h][i] * normal[h][i];
      }
    }
    const float2 sums = row_sums(b.shape, sum_g, sum_gn, scratch[parity]);
    parity ^= 1;
    const float mean_g = b.centred ? sums.x / static_cast<float>(channels) : 0.f;
    const float mean_gn = sums.y / static_cast<float>(channels);
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const std::int64_t c = (std::int64_t{h} * me.threads + me.thread) * kWidth;
      if (!inside || c >= channels) continue;
      for (int i = 0; i < kWidth; ++i) {
        const float own = rstd * (g[h][i] - mean_g - normal[h][i] * mean_gn);
        g[h][i] = b.d_stream != nullptr ? d[h][i] + own : own;
      }
      if (b.d_stream != nullptr) store_pack<kWidth>(b.d_stream + at + c, g[h]);
      if (b.d_branch != nullptr) {
        store_pack<kWidth>(b.d_branch + (b.d_stream != nullptr ? at : from) + c, g[h]);
      }
    }
  }
  // The groups' sums are added in their order, weight first and bias after it.
  float* const partial = b.partial + std::int64_t{blockIdx.x} * 2 * channels;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t c = (std::int64_t{h} * me.threads + me.thread) * kWidth;
    if (c >= channels) continue;
    float* const own = shared + std::int64_t{me.group} * 2 * channels + c;
    for (int i = 0; i < kWidth; ++i) {
      own[i] = d_weight[h][i];
      own[channels + i] = d_bias[h][i];
    }
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < (b.biased ? 2 : 1) * channels; i += blockDim.x) {
    float sum = 0;
    for (int group = 0; group < b.shape.groups; ++group) sum += shared[group * 2 * channels + i];
    partial[i] = sum;
  }
}

void check_channels(std::int64_t channels, std::int64_t most, bool packs) {
  if (channels >= 1 && channels <= most) return;
  throw SystemError("a norm of " + std::to_string(channels) +
                    " channels on a device: must be 1 to " + std::to_string(most) +
                    (packs ? "" : " (8192 for multiples of 4 in aligned rows)"));
}

dim3 threads_of(RowShape shape) { return dim3(shape.warps * shape.groups * kWarp); }

constexpr int kMostHeld = 4;         // packs of four values a thread
constexpr int kMostHeldSingles = 8;  // single values
constexpr std::int64_t kMostChannels = std::int64_t{kMostThreads} * kMostHeld * 4;
constexpr std::int64_t kMostSingles = std::int64_t{kMostThreads} * kMostHeldSingles;

template <typename S, typename T, int kWidth, int kHeld>
void launch_forward(Stream& stream, Forward<S, T> f) {
  f.shape = row_shape((f.in.channels + kWidth - 1) / kWidth, kHeld);
  const std::int64_t blocks = (f.rows + f.shape.groups - 1) / f.shape.groups;
  launch(stream, {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = threads_of(f.shape)},
         forward_kernel<S, T, kWidth, kHeld>, f);
}

template <typename S, typename T>
void forward(Stream& stream, const Forward<S, T>& f) {
  const std::int64_t channels = f.in.channels;
  const bool packs = channels % 4 == 0 && fits_packs(4, f.x, f.in.row) &&
                     fits_packs(4, f.branch, channels) && fits_packs(4, f.s, channels) &&
                     fits_packs(4, f.weight, channels) && fits_packs(4, f.bias, channels) &&
                     fits_packs(4, f.y, channels);
  check_channels(channels, packs ? kMostChannels : kMostSingles, packs);
  if (f.rows == 0) return;
  if (!packs) {
    launch_forward<S, T, 1, kMostHeldSingles>(stream, f);
  } else if (channels <= 128) {
    launch_forward<S, T, 4, 1>(stream, f);
  } else if (channels <= 256) {
    launch_forward<S, T, 4, 2>(stream, f);
  } else {
    launch_forward<S, T, 4, kMostHeld>(stream, f);
  }
}

std::size_t scratch_floats(std::int64_t channels) {
  return static_cast<std::size_t>(kBackwardBlocks * 2 * channels);
}

template <typename S, typename T, int kWidth, int kHeld>
std::int64_t launch_backward(Stream& stream, Backward<S, T> b) {
  b.shape = row_shape((b.in.channels + kWidth - 1) / kWidth, kHeld);
  const std::int64_t needed = (b.rows + b.shape.groups - 1) / b.shape.groups;
  const std::int64_t blocks = needed < kBackwardBlocks ? needed : kBackwardBlocks;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(blocks)),
          .threads = threads_of(b.shape),
          .shared_bytes =
              static_cast<std::size_t>(b.shape.groups * 2 * b.in.channels) * sizeof(float)},
         backward_kernel<S, T, kWidth, kHeld>, b);
  return blocks;
}

template <typename S, typename T>
void backward(Stream& stream, const Backward<S, T>& b, float* d_weight, float* d_bias) {
  const std::int64_t channels = b.in.channels;
  const bool packs = channels % 4 == 0 && fits_packs(4, b.dy, channels) &&
                     fits_packs(4, b.s, b.in.row) && fits_packs(4, b.weight, channels) &&
                     fits_packs(4, b.d_stream, channels) && fits_packs(4, b.d_branch, b.in.row);
  check_channels(channels, packs ? kMostChannels : kMostSingles, packs);
  if (b.rows == 0) return;
  std::int64_t parts = 0;
  if (!packs) {
    parts = launch_backward<S, T, 1, kMostHeldSingles>(stream, b);
  } else if (channels <= 128) {
    parts = launch_backward<S, T, 4, 1>(stream, b);
  } else if (channels <= 256) {
    parts = launch_backward<S, T, 4, 2>(stream, b);
  } else {
    parts = launch_backward<S, T, 4, kMostHeld>(stream, b);
  }
  // Weight and bias are neighbours in a model's layout: then both at once.
  const bool together = d_bias == d_weight + channels;
  add_partial_sums(stream, parts, together ? 2 * channels : channels, 2 * channels, b.partial,
                   d_weight);
  if (d_bias != nullptr && !together) {
    add_partial_sums(stream, parts, channels, 2 * channels, b.partial + channels, d_bias);
  }
}

}  // namespace

template <typename T>
void norm_forward(Stream& stream, const NormForward<T>& norm) {
  Forward<float, T> f;
  f.in = {.heads = 1, .row = norm.channels, .channels = norm.channels};
  f.rows = norm.rows;
  f.eps = static_cast<float>(norm.eps);
  f.centred = norm.centred;
  f.x = norm.x;
  f.branch = norm.branch;
  f.s = norm.s;
  f.weight = norm.weight;
  f.bias = norm.bias;
  f.y = norm.y;
  f.mean = norm.mean;
  f.rstd = norm.rstd;
  forward(stream, f);
}

std::size_t norm_backward_scratch(std::int64_t channels) { return scratch_floats(channels); }

template <typename T>
void norm_backward(Stream& stream, const NormBackward<T>& norm) {
  Backward<float, T> b;
  b.in = {.heads = 1, .row = norm.channels, .channels = norm.channels};
  b.rows = norm.rows;
  b.centred = norm.centred;
  b.dy = norm.dy;
  b.s = norm.s;
  b.weight = norm.weight;
  b.mean = norm.mean;
  b.rstd = norm.rstd;
  b.d_stream = norm.d_stream;
  b.d_branch = norm.d_branch;
  b.biased = norm.d_bias != nullptr;
  b.partial = norm.scratch;
  backward(stream, b, norm.d_weight, norm.d_bias);
}

template <typename T>
void head_norm_forward(Stream& stream, const HeadNorm<T>& norm, const T* x, T* y, float* rstd) {
  Forward<T, T> f;
  f.in = {.heads = norm.heads, .row = norm.row, .channels = norm.head_dim};
  f.rows = norm.rows * norm.heads;
  f.eps = static_cast<float>(norm.eps);
  f.x = x;
  f.weight = norm.weight;
  f.y = y;
  f.rstd = rstd;
  forward(stream, f);
}

std::size_t head_norm_scratch(std::int64_t head_dim) { return scratch_floats(head_dim); }

template <typename T>
void head_norm_backward(Stream& stream, const HeadNorm<T>& norm, const T* dy, const T* x,
                        const float* rstd, T* dx, float* d_weight, float* scratch) {
  Backward<T, T> b;
  b.in = {.heads = norm.heads, .row = norm.row, .channels = norm.head_dim};
  b.rows = norm.rows * norm.heads;
  b.dy = dy;
  b.s = x;
  b.weight = norm.weight;
  b.rstd = rstd;
  b.d_branch = dx;
  b.partial = scratch;
  backward(stream, b, d_weight, nullptr);
}

#define ISTHMUS_INSTANTIATE(T)                                                                    \
  template void norm_forward(Stream&, const NormForward<T>&);                                     \
  template void norm_backward(Stream&, const NormBackward<T>&);                                   \
  template void head_norm_forward(Stream&, const HeadNorm<T>&, const T*, T*, float*);             \
  template void head_norm_backward(Stream&, const HeadNorm<T>&, const T*, const T*, const float*, \
                                   T*, float*, float*);
ISTHMUS_INSTANTIATE(Bf16)
ISTHMUS_INSTANTIATE(float)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::cuda
