// SPDX-License-Identifier: Apache-2.0
// Each product and sum is rounded on its own, in the order of kernels/optimizer_fast.h. Every value
// is read and written once.
#include "kernels/cuda/grid.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/pack.h"
#include "kernels/optimizer_math.h"

namespace isthmus::cuda {
namespace {

constexpr std::int64_t kNormBlock = 4096;  // elements per partial sum of squares
constexpr int kNormThreads = 128;
constexpr int kAddThreads = 512;
constexpr int kChains = 8;  // sums of such a block: element i is in sum i mod 8
constexpr double kClipEpsilon = 1e-6;
constexpr int kPack = 4;

// The eight sums of a block are eight chains of 512 additions, so the block stages its elements in
// shared memory and eight threads add; many blocks hide that the others wait.
__global__ void squares_kernel(std::int64_t n, const float* x, double* partial) {
  __shared__ float values[kNormBlock];
  __shared__ double sums[kChains];
  const std::int64_t begin = std::int64_t{blockIdx.x} * kNormBlock;
  const auto count = static_cast<int>(n - begin < kNormBlock ? n - begin : kNormBlock);
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < count; i += kNormThreads) values[i] = x[begin + i];
  __syncthreads();
  if (t < kChains) {
    double sum = 0;
    for (int i = t; i < count; i += kChains) {
      const auto value = static_cast<double>(values[i]);
      sum += value * value;
    }
    sums[t] = sum;
  }
  __syncthreads();
  if (t == 0) {
    partial[blockIdx.x] =
        ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }
}

// One block; a single thread adds, as the order asks, from what all threads have brought.
__global__ void add_in_order_kernel(std::int64_t blocks, const double* partial, double* squares) {
  __shared__ double values[kAddThreads];
  const int t = static_cast<int>(threadIdx.x);
  double total = 0;
  for (std::int64_t first = 0; first < blocks; first += kAddThreads) {
    values[t] = first + t < blocks ? partial[first + t] : 0;
    __syncthreads();
    for (int i = 0; t == 0 && i < kAddThreads; ++i) total += values[i];
    __syncthreads();
  }
  if (t == 0) *squares = total;
}

/// What multiplies the gradients, as kernels::clip_coefficient; the sum of squares is finite.
__device__ inline float clip_factor(const StepNumbers& numbers, double squares) {
  if (numbers.clip == 0) return 1;
  const double ratio = static_cast<double>(numbers.clip) / (sqrt(squares) + kClipEpsilon);
  return static_cast<float>(ratio < 1 ? ratio : 1);
}

__device__ inline bool is_finite(double x) { return x - x == 0; }

struct AdamW {
  float decay, factor;
  StepNumbers k;
  __device__ void update(float gradient, float& p, float& m, float& v) const {
    gradient *= factor;
    m += k.keep1 * (gradient - m);
    v = k.beta2 * v + k.keep2 * gradient * gradient;
    p = p * decay - k.rate * (m / (sqrtf(v) / k.root + k.eps));
  }
};

/// Calls body.run<width>(i) for all i of the run, in packs where these lie inside of it.
template <typename Body>
__device__ inline void for_run(const ParameterRun& run, bool packs, const Body& body) {
  const std::int64_t end = run.begin + run.n;
  const auto first = static_cast<std::int64_t>(first_element());
  const auto stride = static_cast<std::int64_t>(element_stride());
  if (!packs) {
    for (std::int64_t i = run.begin + first; i < end; i += stride) body.template run<1>(i);
    return;
  }
  for (std::int64_t u = run.begin / kPack + first; u * kPack < end; u += stride) {
    const std::int64_t i = u * kPack;
    if (i >= run.begin && i + kPack <= end) {
      body.template run<kPack>(i);
      continue;
    }
    for (std::int64_t j = i; j < i + kPack; ++j) {
      if (j >= run.begin && j < end) body.template run<1>(j);
    }
  }
}

struct AdamWRun {
  AdamW step;
  OptimizerArrays a;
  template <int kWidth>
  __device__ void run(std::int64_t i) const {
    float p[kWidth], g[kWidth], m[kWidth], v[kWidth];
    load_pack<kWidth>(a.values + i, p);
    load_pack<kWidth>(a.gradients + i, g);
    load_pack<kWidth>(a.first + i, m);
    load_pack<kWidth>(a.second + i, v);
    for (int j = 0; j < kWidth; ++j) step.update(g[j], p[j], m[j], v[j]);
    store_pack<kWidth>(a.first + i, m);
    store_pack<kWidth>(a.second + i, v);
    store_pack<kWidth>(a.values + i, p);
    if (a.working != nullptr) store_pack<kWidth>(a.working + i, p);
  }
};

__global__ void __launch_bounds__(kThreads)
    adamw_kernel(ParameterRun run, OptimizerArrays arrays, bool packs, const StepNumbers* numbers,
                 const double* squares) {
  const double norm_squared = *squares;
  if (!is_finite(norm_squared)) return;
  const StepNumbers k = *numbers;
  const auto decay = static_cast<float>(1 - k.lr * run.weight_decay);
  for_run(run, packs, AdamWRun{{decay, clip_factor(k, norm_squared), k}, arrays});
}

struct SgdRun {
  float rate, momentum, decay, factor;
  bool nesterov, first_step;
  OptimizerArrays a;
  template <int kWidth>
  __device__ void run(std::int64_t i) const {
    float p[kWidth], g[kWidth], b[kWidth] = {};
    load_pack<kWidth>(a.values + i, p);
    load_pack<kWidth>(a.gradients + i, g);
    if (momentum != 0 && !first_step) load_pack<kWidth>(a.first + i, b);
    for (int j = 0; j < kWidth; ++j) {
      const float gradient = factor * g[j] + decay * p[j];
      float direction = gradient;
      if (momentum != 0) {
        b[j] = first_step ? gradient : momentum * b[j] + gradient;
        direction = nesterov ? gradient + momentum * b[j] : b[j];
      }
      p[j] -= rate * direction;
    }
    if (momentum != 0) store_pack<kWidth>(a.first + i, b);
    store_pack<kWidth>(a.values + i, p);
    if (a.working != nullptr) store_pack<kWidth>(a.working + i, p);
  }
};

__global__ void __launch_bounds__(kThreads)
    sgd_kernel(ParameterRun run, OptimizerArrays arrays, bool packs, bool nesterov,
               const StepNumbers* numbers, const double* squares) {
  const double norm_squared = *squares;
  if (!is_finite(norm_squared)) return;
  const StepNumbers k = *numbers;
  for_run(run, packs,
          SgdRun{k.rate, k.momentum, static_cast<float>(run.weight_decay),
                 clip_factor(k, norm_squared), nesterov, k.updates == 1, arrays});
}

bool fits(const OptimizerArrays& a) {
  return fits_packs(kPack, a.values, 0) && fits_packs(kPack, a.gradients, 0) &&
         fits_packs(kPack, a.first, 0) && fits_packs(kPack, a.second, 0) &&
         fits_packs(kPack, a.working, 0);
}

LaunchShape shape_of(const ParameterRun& run, bool packs) {
  const std::int64_t threads = packs ? run.n / kPack + 2 : run.n;
  return elements_shape(static_cast<std::size_t>(threads));
}

}  // namespace

StepNumbers adamw_numbers(const kernels::AdamWOptions& options, double clip) {
  const kernels::AdamWConstants<float> k(options);
  return {.keep1 = k.keep1,
          .beta2 = k.beta2,
          .keep2 = k.keep2,
          .rate = k.rate,
          .root = k.root,
          .eps = k.eps,
          .momentum = 0,
          .clip = clip,
          .lr = options.lr,
          .updates = options.step};
}

StepNumbers sgd_numbers(const kernels::SgdOptions& options, std::int64_t update, double clip) {
  return {.keep1 = 0,
          .beta2 = 0,
          .keep2 = 0,
          .rate = static_cast<float>(options.lr),
          .root = 0,
          .eps = 0,
          .momentum = static_cast<float>(options.momentum),
          .clip = clip,
          .lr = options.lr,
          .updates = update};
}

std::size_t squared_norm_scratch(std::int64_t n) {
  return static_cast<std::size_t>((n + kNormBlock - 1) / kNormBlock);
}

void squared_norm(Stream& stream, std::int64_t n, const float* x, double* squares,
                  double* scratch) {
  const auto blocks = static_cast<std::int64_t>(squared_norm_scratch(n));
  if (blocks > 0) {
    launch(stream, {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(kNormThreads)},
           squares_kernel, n, x, scratch);
  }
  launch(stream, {.threads = dim3(kAddThreads)}, add_in_order_kernel, blocks,
         static_cast<const double*>(scratch), squares);
}

void adamw_step(Stream& stream, const ParameterRun& run, const OptimizerArrays& arrays,
                const StepNumbers* numbers, const double* squares) {
  if (run.n == 0) return;
  const bool packs = fits(arrays);
  launch(stream, shape_of(run, packs), adamw_kernel, run, arrays, packs, numbers, squares);
}

void sgd_step(Stream& stream, const ParameterRun& run, const OptimizerArrays& arrays, bool nesterov,
              const StepNumbers* numbers, const double* squares) {
  if (run.n == 0) return;
  const bool packs = fits(arrays);
  launch(stream, shape_of(run, packs), sgd_kernel, run, arrays, packs, nesterov, numbers, squares);
}

}  // namespace isthmus::cuda
