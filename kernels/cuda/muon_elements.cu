// SPDX-License-Identifier: Apache-2.0
// Bound by memory; bytes moved an element: direction 16, rounding 10, polynomial 10, update 12,
// with `working` 14.
#include "kernels/cuda/grid.h"
#include "kernels/cuda/muon_elements.h"
#include "kernels/cuda/optimizer_device.h"
#include "kernels/cuda/pack.h"
#include "kernels/muon_math.h"

namespace isthmus::cuda {
namespace {

constexpr int kPack = 4;

/// Calls body.run<width>(i) for i from 0 to n: in packs, of which n is a multiple then, or one by
/// one.
template <typename Body>
__device__ inline void for_elements(std::int64_t n, bool packs, const Body& body) {
  const auto first = static_cast<std::int64_t>(first_element());
  const auto stride = static_cast<std::int64_t>(element_stride());
  if (packs) {
    for (std::int64_t p = first; p < n / kPack; p += stride) body.template run<kPack>(p * kPack);
  } else {
    for (std::int64_t i = first; i < n; i += stride) body.template run<1>(i);
  }
}

LaunchShape shape_of(std::int64_t n, bool packs) {
  return elements_shape(static_cast<std::size_t>(packs ? n / kPack : n));
}

struct Direction {
  float keep, factor;
  bool nesterov;
  const float* gradients;
  float *buffer, *x;
  template <int kWidth>
  __device__ void run(std::int64_t i) const {
    float g[kWidth], b[kWidth], d[kWidth];
    load_pack<kWidth>(gradients + i, g);
    load_pack<kWidth>(buffer + i, b);
    for (int j = 0; j < kWidth; ++j) {
      d[j] = kernels::muon_direction(factor * g[j], keep, nesterov, b[j]);
    }
    store_pack<kWidth>(buffer + i, b);
    store_pack<kWidth>(x + i, d);
  }
};

__global__ void __launch_bounds__(kThreads)
    direction_kernel(MuonMatrix matrix, MuonRule rule, OptimizerArrays a, bool packs,
                     const StepNumbers* numbers, const double* squares, float* x) {
  const double norm_squared = *squares;
  if (!is_finite(norm_squared)) return;
  for_elements(matrix.rows * matrix.cols, packs,
               Direction{static_cast<float>(1 - rule.momentum), clip_factor(*numbers, norm_squared),
                         rule.nesterov, a.gradients, a.first, x});
}

struct Rounding {
  float start;
  float* x;
  Bf16* rounded;
  template <int kWidth>
  __device__ void run(std::int64_t i) const {
    float v[kWidth];
    load_pack<kWidth>(x + i, v);
    for (int j = 0; j < kWidth; ++j) v[j] *= start;
    store_pack<kWidth>(rounded + i, v);
    for (int j = 0; j < kWidth; ++j) v[j] *= kernels::kNewtonSchulzA;
    store_pack<kWidth>(x + i, v);
  }
};

__global__ void __launch_bounds__(kThreads)
    rounding_kernel(std::int64_t n, bool packs, const double* squares, float* x, Bf16* rounded) {
  const float start = squares == nullptr ? 1.f : kernels::newton_schulz_start(sqrt(*squares));
  for_elements(n, packs, Rounding{start, x, rounded});
}

struct Polynomial {
  const float *gram, *fourth;
  Bf16* p;
  template <int kWidth>
  __device__ void run(std::int64_t i) const {
    float g[kWidth], f[kWidth];
    load_pack<kWidth>(gram + i, g);
    load_pack<kWidth>(fourth + i, f);
    for (int j = 0; j < kWidth; ++j) {
      f[j] = kernels::combination(kernels::kNewtonSchulzC, f[j], kernels::kNewtonSchulzB, g[j]);
    }
    store_pack<kWidth>(p + i, f);
  }
};

__global__ void __launch_bounds__(kThreads)
    polynomial_kernel(std::int64_t n, bool packs, const float* gram, const float* fourth, Bf16* p) {
  for_elements(n, packs, Polynomial{gram, fourth, p});
}

struct Update {
  float keep, rate;
  const float* x;
  float* values;
  Bf16* working;
  template <int kWidth>
  __device__ void run(std::int64_t i) const {
    float o[kWidth], p[kWidth];
    load_pack<kWidth>(x + i, o);
    load_pack<kWidth>(values + i, p);
    for (int j = 0; j < kWidth; ++j) p[j] = kernels::combination(keep, p[j], rate, o[j]);
    store_pack<kWidth>(values + i, p);
    if (working != nullptr) store_pack<kWidth>(working + i, p);
  }
};

__global__ void __launch_bounds__(kThreads)
    update_kernel(MuonMatrix matrix, OptimizerArrays a, bool packs, const StepNumbers* numbers,
                  const double* squares, const float* x) {
  if (!is_finite(*squares)) return;
  const double lr = numbers->lr;
  for_elements(matrix.rows * matrix.cols, packs,
               Update{static_cast<float>(1 - lr * matrix.weight_decay),
                      static_cast<float>(-lr * matrix.update_scale), x, a.values, a.working});
}

OptimizerArrays from(const OptimizerArrays& a, std::int64_t begin) {
  return {.values = a.values + begin,
          .gradients = a.gradients + begin,
          .first = a.first + begin,
          .working = a.working == nullptr ? nullptr : a.working + begin};
}

bool fits(const OptimizerArrays& a) {
  return fits_packs(kPack, a.values, 0) && fits_packs(kPack, a.gradients, 0) &&
         fits_packs(kPack, a.first, 0) && fits_packs(kPack, a.working, 0);
}

}  // namespace

void muon_direction(Stream& stream, const MuonRule& rule, const MuonMatrix& matrix,
                    const OptimizerArrays& arrays, const StepNumbers* numbers,
                    const double* squares, float* x) {
  const OptimizerArrays a = from(arrays, matrix.begin);
  const std::int64_t n = matrix.rows * matrix.cols;
  const bool packs = n % kPack == 0 && fits(a);
  launch(stream, shape_of(n, packs), direction_kernel, matrix, rule, a, packs, numbers, squares, x);
}

void newton_schulz_round(Stream& stream, std::int64_t n, const double* squares, float* x,
                         Bf16* rounded) {
  const bool packs = n % kPack == 0;
  launch(stream, shape_of(n, packs), rounding_kernel, n, packs, squares, x, rounded);
}

void newton_schulz_polynomial(Stream& stream, std::int64_t n, const float* gram,
                              const float* fourth, Bf16* p) {
  const bool packs = n % kPack == 0;
  launch(stream, shape_of(n, packs), polynomial_kernel, n, packs, gram, fourth, p);
}

void muon_update(Stream& stream, const MuonMatrix& matrix, const OptimizerArrays& arrays,
                 const StepNumbers* numbers, const double* squares, const float* x) {
  const OptimizerArrays a = from(arrays, matrix.begin);
  const std::int64_t n = matrix.rows * matrix.cols;
  const bool packs = n % kPack == 0 && fits(a);
  launch(stream, shape_of(n, packs), update_kernel, matrix, a, packs, numbers, squares, x);
}

}  // namespace isthmus::cuda
