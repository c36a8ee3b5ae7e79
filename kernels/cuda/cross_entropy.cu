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

template <typename T, int kPack>
__global__ void __launch_bounds__(kRowThreads) row_kernel(CrossEntropy<T> ce) {
  __shared__ float tops[kWarp];
  __shared__ double totals[kWarp];
  __shared__ float factor_of_row;
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
  const Softmax softmax = row_softmax<T, kPack>(ce.vocab, logits, tops, totals);
  if (threadIdx.x == 0) {  // alone, since logarithms and quotients in double take long
    const double log_z = static_cast<double>(softmax.top) + log(softmax.total);
    ce.row_losses[2 * r] = log_z - static_cast<double>(static_cast<float>(logits[target]));
    ce.row_losses[2 * r + 1] = ce.z_loss * log_z * log_z;
    // d(log_z)/d(logit) is the softmax, so the z-loss only widens its factor.
    factor_of_row =
        static_cast<float>(ce.gradient_scale * (1 + 2 * ce.z_loss * log_z) / softmax.total);
  }
  if (!ce.gradient) return;
  __syncthreads();
  const float factor = factor_of_row;
  for (std::int64_t c = first; c < end; c += kRowThreads * kPack) {
    float v[kPack];
    load_pack<kPack>(logits + c, v);
    for (int i = 0; i < kPack; ++i) {
      v[i] = c + i < ce.vocab ? factor * __expf(v[i] - softmax.top) : 0.f;
      if (c + i == target) v[i] -= static_cast<float>(ce.gradient_scale);
    }
    store_pack<kPack>(logits + c, v);
  }
}

// One block: each thread adds every 256th row, and the threads' sums are added in a fixed order.
__global__ void totals_kernel(std::int64_t rows, const std::int32_t* targets,
                              const double* row_losses, LossTotals* totals) {
  __shared__ double scratch[2][kWarp];
  __shared__ long long counts[kWarp];
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

}  // namespace

template <typename T>
void cross_entropy(Stream& stream, const CrossEntropy<T>& ce) {
  if (ce.rows == 0) return;
  constexpr int kPack = 16 / sizeof(T);
  const LaunchShape shape{.blocks = dim3(static_cast<unsigned>(ce.rows)),
                          .threads = dim3(kRowThreads)};
  if (fits_packs(kPack, ce.logits, ce.ld)) {
    launch(stream, shape, row_kernel<T, kPack>, ce);
  } else {
    launch(stream, shape, row_kernel<T, 1>, ce);
  }
  launch(stream, {.threads = dim3(kTotalsThreads)}, totals_kernel, ce.rows, ce.targets,
         static_cast<const double*>(ce.row_losses), ce.totals);
}
template void cross_entropy(Stream&, const CrossEntropy<Bf16>&);
template void cross_entropy(Stream&, const CrossEntropy<float>&);

}  // namespace isthmus::cuda
