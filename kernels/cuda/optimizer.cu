// SPDX-License-Identifier: Apache-2.0
// Each product and sum of an update is rounded on its own, in the order of
// kernels/cpu/optimizer_fast.h. Every value is read and written once.
#include <algorithm>

#include "kernels/cuda/grid.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/optimizer_device.h"
#include "kernels/cuda/pack.h"
#include "kernels/optimizer_math.h"

namespace isthmus::cuda {
namespace {

constexpr int kPack = 4;
constexpr std::int64_t kNormBlock = 8192;  // elements per partial sum of squares
constexpr int kNormThreads = 256;
constexpr int kAddThreads = 512;
constexpr std::int64_t kPartElements = 16384;  // of a run, for one block

// A thread adds up every 256th four of a block's elements, then the block's threads are added.
__device__ inline void block_squares(std::int64_t begin, std::int64_t end, const float* x,
                                     bool packs, double* partial) {
  ISTHMUS_SHARED(double, scratch, [kWarp]);
  double sum = 0;
  for (std::int64_t i = begin + std::int64_t{threadIdx.x} * kPack; i < end;
       i += std::int64_t{kNormThreads} * kPack) {
    float v[kPack] = {};
    if (packs && i + kPack <= end) {
      load_pack<kPack>(x + i, v);
    } else {
      for (int j = 0; j < kPack && i + j < end; ++j) v[j] = x[i + j];
    }
    for (int j = 0; j < kPack; ++j) {
      const auto value = static_cast<double>(v[j]);
      sum += value * value;
    }
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void squares_kernel(std::int64_t n, const float* x, bool packs, double* partial) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * kNormBlock;
  block_squares(begin, n - begin < kNormBlock ? n : begin + kNormBlock, x, packs, partial);
}

__global__ void part_squares_kernel(const ParameterRun* parts, const float* x, bool packs,
                                    double* partial) {
  const ParameterRun run = parts[blockIdx.x];
  block_squares(run.begin, run.begin + run.n, x, packs && run.begin % kPack == 0, partial);
}

// One block, in the same manner.
__global__ void add_kernel(std::int64_t blocks, const double* partial, double* squares) {
  ISTHMUS_SHARED(double, scratch, [kWarp]);
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < blocks; i += kAddThreads) total += partial[i];
  total = block_sum(total, scratch);
  if (threadIdx.x == 0) *squares = total;
}

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

/// Calls body.run<width>(i) for all i of the block's run, in packs where these lie inside of it.
template <typename Body>
__device__ inline void for_run(const ParameterRun& run, bool packs, const Body& body) {
  const std::int64_t end = run.begin + run.n;
  const auto first = static_cast<std::int64_t>(threadIdx.x);
  const auto stride = static_cast<std::int64_t>(blockDim.x);
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
  std::int64_t left_out;
  template <int kWidth>
  __device__ void run(std::int64_t i) const {
    float p[kWidth], g[kWidth], m[kWidth], v[kWidth];
    load_pack<kWidth>(a.values + i, p);
    load_pack<kWidth>(a.gradients + i, g);
    load_pack<kWidth>(a.first + i, m);
    load_pack<kWidth>(a.second + (i - left_out), v);
    for (int j = 0; j < kWidth; ++j) step.update(g[j], p[j], m[j], v[j]);
    store_pack<kWidth>(a.first + i, m);
    store_pack<kWidth>(a.second + (i - left_out), v);
    store_pack<kWidth>(a.values + i, p);
    if (a.working != nullptr) store_pack<kWidth>(a.working + i, p);
  }
};

__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const ParameterRun* parts, OptimizerArrays arrays, bool packs,
                 const StepNumbers* numbers, const double* squares) {
  const double norm_squared = *squares;
  if (!is_finite(norm_squared)) return;
  const ParameterRun run = parts[blockIdx.x];
  const StepNumbers k = *numbers;
  const auto decay = static_cast<float>(1 - k.lr * run.weight_decay);
  for_run(run, packs && run.left_out % kPack == 0,
          AdamWRun{{decay, clip_factor(k, norm_squared), k}, arrays, run.left_out});
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
    sgd_kernel(const ParameterRun* parts, OptimizerArrays arrays, bool packs, bool nesterov,
               const StepNumbers* numbers, const double* squares) {
  const double norm_squared = *squares;
  if (!is_finite(norm_squared)) return;
  const ParameterRun run = parts[blockIdx.x];
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

LaunchShape shape_of(const ParameterParts& parts) {
  return {.blocks = dim3(static_cast<unsigned>(parts.count)), .threads = dim3(kThreads)};
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
          .factor = 1,
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
          .factor = 1,
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
           squares_kernel, n, x, fits_packs(kPack, x, 0), scratch);
  }
  launch(stream, {.threads = dim3(kAddThreads)}, add_kernel, blocks,
         static_cast<const double*>(scratch), squares);
}

void part_squares(Stream& stream, const ParameterParts& parts, const float* x, double* partial) {
  if (parts.count == 0) return;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(parts.count)), .threads = dim3(kNormThreads)},
         part_squares_kernel, parts.data, x, fits_packs(kPack, x, 0), partial);
}

std::vector<ParameterRun> parts_of(std::span<const ParameterRun> runs) {
  std::vector<ParameterRun> parts;
  for (const ParameterRun& run : runs) {
    for (std::int64_t done = 0; done < run.n; done += kPartElements) {
      ParameterRun part = run;
      part.begin += done;
      part.n = std::min(kPartElements, run.n - done);
      parts.push_back(part);
    }
  }
  return parts;
}

void adamw_step(Stream& stream, const ParameterParts& parts, const OptimizerArrays& arrays,
                const StepNumbers* numbers, const double* squares) {
  if (parts.count == 0) return;
  launch(stream, shape_of(parts), adamw_kernel, parts.data, arrays, fits(arrays), numbers, squares);
}

void sgd_step(Stream& stream, const ParameterParts& parts, const OptimizerArrays& arrays,
              bool nesterov, const StepNumbers* numbers, const double* squares) {
  if (parts.count == 0) return;
  launch(stream, shape_of(parts), sgd_kernel, parts.data, arrays, fits(arrays), nesterov, numbers,
         squares);
}

}  // namespace isthmus::cuda
