// SPDX-License-Identifier: Apache-2.0
// Element by element, bound by memory at the bytes that the header gives; a warp moves 128 bytes an
// array at a time.
#include "kernels/cuda/grid.h"
#include "kernels/cuda/outer_arithmetic.h"
#include "kernels/host_device.h"
#include "kernels/outer_step_math.h"

namespace isthmus::cuda {
namespace {

using kernels::add_rn;
using kernels::div_rn;
using kernels::mul_rn;
using kernels::sub_rn;

template <typename Operation>
__global__ void elements_kernel(std::size_t n, Operation operation) {
  for (std::size_t i = first_element(); i < n; i += element_stride()) operation(i);
}
template <typename Operation>
void for_elements(Stream& stream, std::size_t n, const Operation& operation) {
  if (n > 0) launch(stream, elements_shape(n), elements_kernel<Operation>, n, operation);
}

struct Subtract {
  const float *anchor, *local, *more;
  float* delta;
  __device__ void operator()(std::size_t i) const {
    const float own = sub_rn(anchor[i], local[i]);
    delta[i] = more == nullptr ? own : add_rn(own, more[i]);
  }
};
struct Mix {
  float alpha, share;
  const float* anchor;
  float* local;
  __device__ void operator()(std::size_t i) const {
    local[i] = add_rn(mul_rn(alpha, local[i]), mul_rn(share, anchor[i]));
  }
};
struct Rebase {
  const float *anchor, *before;
  float* local;
  __device__ void operator()(std::size_t i) const {
    local[i] = add_rn(local[i], sub_rn(anchor[i], before[i]));
  }
};
struct SubtractShare {
  float share;
  const float* stale;
  float* g;
  __device__ void operator()(std::size_t i) const { g[i] = sub_rn(g[i], div_rn(stale[i], share)); }
};
struct AddFreshShare {
  float share;
  const float *anchor, *local;
  float* g;
  __device__ void operator()(std::size_t i) const {
    g[i] = add_rn(g[i], div_rn(sub_rn(anchor[i], local[i]), share));
  }
};
struct Divide {
  float by;
  float* sum;
  __device__ void operator()(std::size_t i) const { sum[i] = div_rn(sum[i], by); }
};
struct DelayedNesterov {
  float eta, mu, rounds;
  bool closes;
  float* x;
  const float* d;
  float *b, *s;
  __device__ void operator()(std::size_t i) const {
    kernels::delayed_nesterov_element(x[i], d[i], b[i], s[i], eta, mu, rounds, closes);
  }
};

struct Co2 {
  float eta, mu, penalty, bound;
  float *x, *d, *m, *moved;
  __device__ void operator()(std::size_t i) const {
    d[i] = div_rn(d[i], penalty);
    float momentum = d[i];
    if (m != nullptr) momentum = m[i] = add_rn(mul_rn(mu, m[i]), d[i]);
    const float clamped = momentum < -bound ? -bound : bound < momentum ? bound : momentum;
    const float next = sub_rn(x[i], mul_rn(eta, clamped));
    moved[i] = sub_rn(next, x[i]);
    x[i] = next;
  }
};

constexpr std::size_t kTile = 4096;  // kTileValues of isthmus/codec.h

// A block copies a tile.
__global__ void gather_tiles_kernel(std::size_t n, const float* x, const float* residual,
                                    const std::uint32_t* tiles, float* out) {
  const std::size_t begin = std::size_t{tiles[blockIdx.x]} * kTile;
  const std::size_t values = n - begin < kTile ? n - begin : kTile;
  float* const to = out + std::size_t{blockIdx.x} * kTile;
  for (std::size_t i = threadIdx.x; i < values; i += blockDim.x) {
    to[i] = residual == nullptr ? x[begin + i] : add_rn(x[begin + i], residual[begin + i]);
  }
}

constexpr unsigned kSquaresLanes = 8;
constexpr unsigned kSquaresThreads = 256;
constexpr unsigned kTilesAtOnce = kSquaresThreads / kSquaresLanes;

// A thread adds up one of the 8 lanes of a tile in order, so four tiles meet in a warp and each
// reads whole sectors of 32 bytes; then the lanes halve.
__global__ void tile_squares_kernel(std::size_t n, const float* x, double* tile_sums) {
  const std::size_t tile = std::size_t{blockIdx.x} * kTilesAtOnce + threadIdx.x / kSquaresLanes;
  const std::size_t begin = tile * kTile + threadIdx.x % kSquaresLanes;
  const std::size_t end = (tile + 1) * kTile < n ? (tile + 1) * kTile : n;
  double sum = 0;
  for (std::size_t i = begin; i < end; i += kSquaresLanes) {
    const auto value = static_cast<double>(x[i]);
    sum += value * value;
  }
  // ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7))
  for (int half = kSquaresLanes / 2; half > 0; half /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, half);
  }
  if (threadIdx.x % kSquaresLanes == 0 && tile * kTile < n) tile_sums[tile] = sum;
}

// In order of tiles by one thread, as the CPU: n / 4096 additions.
__global__ void root_kernel(std::size_t tiles, const double* tile_sums, double* norm) {
  if (threadIdx.x != 0) return;
  double total = 0;
  for (std::size_t tile = 0; tile < tiles; ++tile) total += tile_sums[tile];
  *norm = sqrt(total);
}

}  // namespace

void outer_gradient(Stream& stream, std::size_t n, const float* anchor, const float* local,
                    const float* more, float* delta) {
  for_elements(stream, n, Subtract{anchor, local, more, delta});
}

void mix(Stream& stream, std::size_t n, float alpha, const float* anchor, float* local) {
  if (alpha == 1 || n == 0) return;
  if (alpha == 0) {
    copy(stream, local, anchor, n);
  } else {
    for_elements(stream, n, Mix{alpha, 1 - alpha, anchor, local});
  }
}

void rebase(Stream& stream, std::size_t n, const float* anchor, const float* before, float* local) {
  for_elements(stream, n, Rebase{anchor, before, local});
}

void subtract_share(Stream& stream, std::size_t n, float share, const float* stale, float* g) {
  for_elements(stream, n, SubtractShare{share, stale, g});
}

void add_fresh_share(Stream& stream, std::size_t n, float share, const float* anchor,
                     const float* local, float* g) {
  for_elements(stream, n, AddFreshShare{share, anchor, local, g});
}

void divide(Stream& stream, std::size_t n, float by, float* sum) {
  for_elements(stream, n, Divide{by, sum});
}

void delayed_nesterov_step(Stream& stream, const kernels::OuterStep& step, bool closes,
                           std::size_t n, float* x, const float* d, float* b, float* s) {
  for_elements(
      stream, n,
      DelayedNesterov{step.eta, step.mu, static_cast<float>(step.every), closes, x, d, b, s});
}

void co2_step(Stream& stream, const kernels::OuterStep& step, float penalty, float bound,
              std::size_t n, float* x, float* d, float* m, float* moved) {
  for_elements(stream, n, Co2{step.eta, step.mu, penalty, bound, x, d, m, moved});
}

void gather_tiles(Stream& stream, std::size_t n, const float* x, const float* residual,
                  const std::uint32_t* tiles, std::size_t count, float* out) {
  if (count == 0) return;
  launch(stream, {.blocks = dim3(static_cast<unsigned>(count)), .threads = dim3(kThreads)},
         gather_tiles_kernel, n, x, residual, tiles, out);
}

void tile_squares(Stream& stream, std::size_t n, const float* x, double* tile_sums) {
  const std::size_t tiles = (n + kTile - 1) / kTile;
  if (tiles == 0) return;
  const std::size_t blocks = (tiles + kTilesAtOnce - 1) / kTilesAtOnce;
  launch(stream, {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(kSquaresThreads)},
         tile_squares_kernel, n, x, tile_sums);
}

void l2_norm(Stream& stream, std::size_t n, const float* x, double* tile_sums, double* norm) {
  tile_squares(stream, n, x, tile_sums);
  launch(stream, {.threads = dim3(kWarp)}, root_kernel, (n + kTile - 1) / kTile, tile_sums, norm);
}

}  // namespace isthmus::cuda
