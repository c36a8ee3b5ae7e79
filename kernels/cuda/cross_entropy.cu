// SPDX-License-Identifier: Apache-2.0
// A block a row. With Bf16 and a gradient 4 bytes of device memory an element: the second pass
// finds its row in the L2 cache (264 blocks at a time hold 26 MB of rows of 50257), the first one
// keeps a running maximum (Milakov & Gimelshein arXiv:1805.02867).
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/pack.h"

namespace isthmus::cuda {
namespace {

constexpr int kRowThreads = 1024;
constexpr int kTotalsThreads = 256;
constexpr float kLowest = -3.402823466e38f;

struct Softmax {
  float top;
  double total;  // of exp(logit - top)
};

/// The row's softmax on every thread. tops, totals: kWarp values of shared memory each.
template <typename T, int kPack>
__device__ inline Softmax row_softmax(std::int64_t vocab, const T* logits, float* tops,
                                      double* totals) {
  float top = kLowest, total = 0;
  const std::int64_t whole = vocab / kPack * kPack;
  for (std::int64_t c = std::int64_t{threadIdx.x} * kPack; c < whole; c += kRowThreads * kPack) {
    float v[kPack];
    load_pack<kPack>(logits + c, v);
    float highest = v[0];
    for (int i = 1; i < kPack; ++i) highest = v[i] > highest ? v[i] : highest;
    if (highest > top) {
      total *= __expf(top - highest);
      top = highest;
    }
    for (int i = 0; i < kPack; ++i) total += __expf(v[i] - top);
  }
  for (std::int64_t c = whole + threadIdx.x; c < vocab; c += kRowThreads) {
    const float v = logits[c];
    if (v > top) {
      total *= __expf(top - v);
      top = v;
    }
    total += __expf(v - top);
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const float warp_top = warp_max(top);
  if (lane == 0) tops[warp] = warp_top;
  __syncthreads();
  const float row_top = warp_max(tops[lane]);
  const double own = static_cast<double>(total) * static_cast<double>(__expf(top - row_top));
  return {row_top, block_sum(own, totals)};
}

template <typename T>
__device__ inline bool is_here(const CrossEntropy<T>& ce, std::int64_t target) {
  return target >= ce.first && target < ce.first + ce.vocab;
}

template <typename T, int kPack>
__global__ void __launch_bounds__(kRowThreads) shares_kernel(CrossEntropy<T> ce, RowShare* shares) {
  ISTHMUS_SHARED(float, tops, [kWarp]);
  ISTHMUS_SHARED(double, totals, [kWarp]);
  const std::int64_t r = blockIdx.x;
  const T* const logits = ce.logits + r * ce.ld;
  const std::int32_t target = ce.targets[r];
  if (target < 0) return;
  const Softmax own = row_softmax<T, kPack>(ce.vocab, logits, tops, totals);
  if (threadIdx.x != 0) return;
  const float found = is_here(ce, target) ? static_cast<float>(logits[target - ce.first]) : 0.f;
  shares[r] = {static_cast<double>(own.top), own.total, static_cast<double>(found)};
}

/// A row's softmax and its target's logit from the values of all ranks, in rank order.
template <typename T>
__device__ inline Softmax joined(const CrossEntropy<T>& ce, std::int64_t r, double* target) {
  double top = ce.shares[r].top;
  for (int i = 1; i < ce.ranks; ++i) {
    const double other = ce.shares[i * ce.rows + r].top;
    top = other > top ? other : top;
  }
  double total = 0, found = 0;
  for (int i = 0; i < ce.ranks; ++i) {
    const RowShare& share = ce.shares[i * ce.rows + r];
    total += share.total * exp(share.top - top);
    found += share.target;
  }
  *target = found;
  return {static_cast<float>(top), total};
}

// kShared: ranks share the columns. A separate kernel, so that a single device's kernel has no
// registers for it.
template <typename T, int kPack, bool kShared>
__global__ void __launch_bounds__(kRowThreads) row_kernel(CrossEntropy<T> ce) {
  ISTHMUS_SHARED(float, tops, [kWarp]);
  ISTHMUS_SHARED(double, totals, [kWarp]);
  ISTHMUS_SHARED(float, factor_of_row);
  ISTHMUS_SHARED(float, share_of_target);
  const std::int64_t r = blockIdx.x;
  T* const logits = ce.logits + r * ce.ld;
  const std::int32_t target = ce.targets[r];
  const std::int64_t first = std::int64_t{threadIdx.x} * kPack;
  const std::int64_t end = kPack == 1 ? ce.ld : ce.ld / kPack * kPack;
  if (target < 0) {
    if (!ce.gradient) return;
    const float zero[kPack] = {};
    for (std::int64_t c = first; c < end; c += kRowThreads * kPack) {
      store_pack<kPack>(logits + c, zero);
    }
    return;
  }
  double found = 0;
  Softmax softmax;
  if constexpr (kShared) {
    softmax = joined(ce, r, &found);
  } else {
    softmax = row_softmax<T, kPack>(ce.vocab, logits, tops, totals);
  }
  if (threadIdx.x == 0) {  // alone, since logarithms and quotients in double take long
    const double log_z = static_cast<double>(softmax.top) + log(softmax.total);
    if constexpr (!kShared) found = static_cast<double>(static_cast<float>(logits[target]));
    ce.row_losses[2 * r] = log_z - found;
    ce.row_losses[2 * r + 1] = ce.z_loss * log_z * log_z;
    if (ce.gradient) {
      // d(log_z)/d(logit) is the softmax, so the z-loss only widens its factor.
      const double scale = *ce.gradient_scale;
      factor_of_row = static_cast<float>(scale * (1 + 2 * ce.z_loss * log_z) / softmax.total);
      share_of_target = static_cast<float>(scale);
    }
  }
  if (!ce.gradient) return;
  __syncthreads();
  const float factor = factor_of_row, of_target = share_of_target;
  const std::int64_t column = is_here(ce, target) ? target - ce.first : -1;
  for (std::int64_t c = first; c < end; c += kRowThreads * kPack) {
    float v[kPack];
    load_pack<kPack>(logits + c, v);
    for (int i = 0; i < kPack; ++i) {
      v[i] = c + i < ce.vocab ? factor * __expf(v[i] - softmax.top) : 0.f;
      if (c + i == column) v[i] -= of_target;
    }
    store_pack<kPack>(logits + c, v);
  }
}

// One block: each thread adds every 256th row, and the threads' sums are added in a fixed order.
__global__ void totals_kernel(std::int64_t rows, const std::int32_t* targets,
                              const double* row_losses, LossTotals* totals) {
  ISTHMUS_SHARED(double, scratch, [2][kWarp]);
  ISTHMUS_SHARED(long long, counts, [kWarp]);
  double loss = 0, z_loss = 0;
  long long counted = 0;
  for (std::int64_t r = threadIdx.x; r < rows; r += kTotalsThreads) {
    if (targets[r] < 0) continue;
    loss += row_losses[2 * r];
    z_loss += row_losses[2 * r + 1];
    ++counted;
  }
  loss = block_sum(loss, scratch[0]);
  z_loss = block_sum(z_loss, scratch[1]);
  counted = block_sum(counted, counts);
  if (threadIdx.x != 0) return;
  totals->loss += loss;
  totals->z_loss += z_loss;
  totals->targets += counted;
}

LaunchShape rows_shape(std::int64_t rows) {
  return {.blocks = dim3(static_cast<unsigned>(rows)), .threads = dim3(kRowThreads)};
}

}  // namespace

template <typename T>
void cross_entropy(Stream& stream, const CrossEntropy<T>& ce) {
  if (ce.rows == 0) return;
  constexpr int kPack = 16 / sizeof(T);
  const bool packs = fits_packs(kPack, ce.logits, ce.ld);
  const auto kernel = ce.shares != nullptr
                          ? (packs ? row_kernel<T, kPack, true> : row_kernel<T, 1, true>)
                          : (packs ? row_kernel<T, kPack, false> : row_kernel<T, 1, false>);
  launch(stream, rows_shape(ce.rows), kernel, ce);
  launch(stream, {.threads = dim3(kTotalsThreads)}, totals_kernel, ce.rows, ce.targets,
         static_cast<const double*>(ce.row_losses), ce.totals);
}
template void cross_entropy(Stream&, const CrossEntropy<Bf16>&);
template void cross_entropy(Stream&, const CrossEntropy<float>&);

template <typename T>
void row_shares(Stream& stream, const CrossEntropy<T>& ce, RowShare* shares) {
  if (ce.rows == 0) return;
  constexpr int kPack = 16 / sizeof(T);
  if (fits_packs(kPack, ce.logits, ce.ld)) {
    launch(stream, rows_shape(ce.rows), shares_kernel<T, kPack>, ce, shares);
  } else {
    launch(stream, rows_shape(ce.rows), shares_kernel<T, 1>, ce, shares);
  }
}
template void row_shares(Stream&, const CrossEntropy<Bf16>&, RowShare*);
template void row_shares(Stream&, const CrossEntropy<float>&, RowShare*);

}  // namespace isthmus::cuda
