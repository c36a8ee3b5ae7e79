// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/matmul_finish.h"
#include "kernels/cuda/pack.h"

namespace isthmus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;

enum class Finish { kBias, kGeluBias, kGeluGradient };

// A block a row.
template <Finish kFinish, typename T, int kWidth>
__global__ void finish_kernel(StoredProduct<T> p) {
  T* const row = p.c + std::int64_t{blockIdx.x} * p.ld;
  T* const aux = p.aux + std::int64_t{blockIdx.x} * p.ld;
  for (std::int64_t j = std::int64_t{threadIdx.x} * kWidth; j < p.columns; j += kThreads * kWidth) {
    float v[kWidth], other[kWidth];
    load_pack<kWidth>(row + j, v);
    if constexpr (kFinish == Finish::kGeluGradient) {
      load_pack<kWidth>(aux + j, other);
      for (int i = 0; i < kWidth; ++i) v[i] *= fast_gelu_derivative(other[i]);
    } else {
      load_pack<kWidth>(p.bias + j, other);
      for (int i = 0; i < kWidth; ++i) v[i] += other[i];
    }
    if constexpr (kFinish == Finish::kGeluBias) {
      store_pack<kWidth>(aux + j, v);
      for (int i = 0; i < kWidth; ++i) v[i] = fast_gelu(v[i]);
    }
    store_pack<kWidth>(row + j, v);
  }
}

template <Finish kFinish, typename T>
void finish(Stream& stream, const StoredProduct<T>& p) {
  if (p.rows == 0 || p.columns == 0) return;
  const LaunchShape shape{.blocks = dim3(static_cast<unsigned>(p.rows)), .threads = dim3(kThreads)};
  if (p.columns % kPack == 0 && fits_packs(kPack, p.c, p.ld) && fits_packs(kPack, p.aux, p.ld) &&
      fits_packs(kPack, p.bias, p.columns)) {
    launch(stream, shape, finish_kernel<kFinish, T, kPack>, p);
  } else {
    launch(stream, shape, finish_kernel<kFinish, T, 1>, p);
  }
}

}  // namespace

template <typename T>
void finish_bias(Stream& stream, const StoredProduct<T>& product) {
  finish<Finish::kBias>(stream, product);
}
template <typename T>
void finish_gelu_bias(Stream& stream, const StoredProduct<T>& product) {
  finish<Finish::kGeluBias>(stream, product);
}
template <typename T>
void finish_gelu_gradient(Stream& stream, const StoredProduct<T>& product) {
  finish<Finish::kGeluGradient>(stream, product);
}

#define ISTHMUS_INSTANTIATE(T)                                      \
  template void finish_bias(Stream&, const StoredProduct<T>&);      \
  template void finish_gelu_bias(Stream&, const StoredProduct<T>&); \
  template void finish_gelu_gradient(Stream&, const StoredProduct<T>&);
ISTHMUS_INSTANTIATE(Bf16)
ISTHMUS_INSTANTIATE(float)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::cuda
