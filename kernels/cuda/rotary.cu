// SPDX-License-Identifier: Apache-2.0
// In place: with Bf16 4 bytes moved an element; the tables stay in the cache.
#include "kernels/cuda/pack.h"
#include "kernels/cuda/rotary.h"

namespace isthmus::cuda {
namespace {

constexpr std::int64_t kBlockThreads = 256;

template <typename T>
struct Rotation {
  std::int64_t rows, seq, row;
  int units, half;     // of a row: packs of the lower halves of its heads; values of such a half
  int rows_at_a_time;  // of a block
  float direction;     // 1, or -1 for the way back
  T* x;
  const float* cosine;
  const float* sine;
};

template <typename T, int kPack>
__global__ void rotate_kernel(Rotation<T> r) {
  const int packs = r.half / kPack;
  const int within = static_cast<int>(threadIdx.x) / r.units;
  const std::int64_t row = std::int64_t{blockIdx.x} * r.rows_at_a_time + within;
  if (within >= r.rows_at_a_time || row >= r.rows) return;
  T* const heads = r.x + row * r.row;
  const std::int64_t table = row % r.seq * r.half;
  for (int u = static_cast<int>(threadIdx.x) - within * r.units; u < r.units;
       u += static_cast<int>(blockDim.x)) {
    const int head = u / packs;
    const int i = (u - head * packs) * kPack;
    T* const low = heads + std::int64_t{head} * 2 * r.half + i;
    T* const high = low + r.half;
    float a[kPack], b[kPack], c[kPack], s[kPack];
    load_pack<kPack>(low, a);
    load_pack<kPack>(high, b);
    load_pack<kPack>(r.cosine + table + i, c);
    load_pack<kPack>(r.sine + table + i, s);
    for (int j = 0; j < kPack; ++j) {
      const float sine = r.direction * s[j];
      const float rotated = a[j] * c[j] - b[j] * sine;
      b[j] = b[j] * c[j] + a[j] * sine;
      a[j] = rotated;
    }
    store_pack<kPack>(low, a);
    store_pack<kPack>(high, b);
  }
}

template <typename T, int kPack>
void launch_rotation(Stream& stream, std::int64_t heads, Rotation<T> r) {
  r.units = static_cast<int>(heads * r.half / kPack);
  r.rows_at_a_time = r.units >= kBlockThreads ? 1 : static_cast<int>(kBlockThreads / r.units);
  const std::int64_t blocks = (r.rows + r.rows_at_a_time - 1) / r.rows_at_a_time;
  launch(stream, {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(kBlockThreads)},
         rotate_kernel<T, kPack>, r);
}

}  // namespace

template <typename T>
void rotate(Stream& stream, bool backward, std::int64_t rows, std::int64_t seq, std::int64_t heads,
            std::int64_t head_dim, std::int64_t row, T* x, const float* cosine, const float* sine) {
  if (rows == 0 || heads == 0) return;
  const Rotation<T> r{.rows = rows,
                      .seq = seq,
                      .row = row,
                      .units = 0,
                      .half = static_cast<int>(head_dim / 2),
                      .rows_at_a_time = 1,
                      .direction = backward ? -1.f : 1.f,
                      .x = x,
                      .cosine = cosine,
                      .sine = sine};
  const bool tables = fits_packs(4, cosine, r.half) && fits_packs(4, sine, r.half);
  if (tables && r.half % 8 == 0 && fits_packs(8, x, row)) {
    launch_rotation<T, 8>(stream, heads, r);
  } else if (tables && fits_packs(4, x, row)) {
    launch_rotation<T, 4>(stream, heads, r);
  } else {
    launch_rotation<T, 1>(stream, heads, r);
  }
}
template void rotate(Stream&, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                     std::int64_t, Bf16*, const float*, const float*);
template void rotate(Stream&, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                     std::int64_t, float*, const float*, const float*);

}  // namespace isthmus::cuda
