// SPDX-License-Identifier: Apache-2.0
// AdamW, SGD, gradient norm and clipping on the device without host synchronisation, so that a step
// can be captured in a CUDA graph: numbers that change from step to step are in device memory. The
// arithmetic of an element is that of kernels/optimizer.h, each product and sum rounded separately:
// equal gradients and clip coefficients give equal bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"
#include "kernels/optimizer.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// The numbers that a step's kernels read, made by adamw_numbers or sgd_numbers; copied to the
/// device before each step.
struct StepNumbers {
  float keep1, beta2, keep2, rate, root, eps, momentum;  // AdamWConstants; `rate`: lr for SGD
  double clip;                                           // largest norm; 0: off
  float factor;                                          // multiplies the gradients
  double lr;
  std::int64_t updates;  // number of this update, from 1
};
/// clip: as StepNumbers::clip; `factor` is 1.
[[nodiscard]] StepNumbers adamw_numbers(const kernels::AdamWOptions& options, double clip);
[[nodiscard]] StepNumbers sgd_numbers(const kernels::SgdOptions& options, std::int64_t update,
                                      double clip);

/// Contiguous values with equal weight decay.
struct ParameterRun {
  std::int64_t begin = 0, n = 0;  // indices in the flat arrays
  double weight_decay = 0;
  std::int64_t left_out = 0;  // number of values before `begin` without an entry in `second`
};
/// `runs` cut into parts of at most 16384 values, one per thread block, so that all runs of a model
/// are one launch.
[[nodiscard]] std::vector<ParameterRun> parts_of(std::span<const ParameterRun> runs);
/// The same in device memory.
struct ParameterParts {
  const ParameterRun* data = nullptr;
  std::int64_t count = 0;
};

/// Flat arrays in canonical order, on the device; (n,) each, except `second`.
struct OptimizerArrays {
  float* values = nullptr;
  const float* gradients = nullptr;
  float* first = nullptr;   // m, or SGD's buffer
  float* second = nullptr;  // v, without the values that are left out
  Bf16* working = nullptr;  // the values as Bf16, for matrix products; null: not written
};

/// squares := the sum of squares of x (n,), in double. scratch: squared_norm_scratch(n) doubles.
/// DETERMINISM: the sum is a tree that depends only on n, so every run on a device gives the same
/// bits. They differ from kernels::squared_norm, which sums in the order of one thread, by the
/// rounding of doubles.
[[nodiscard]] std::size_t squared_norm_scratch(std::int64_t n);
void squared_norm(Stream& stream, std::int64_t n, const float* x, double* squares, double* scratch);

/// partial[i] := the sum of squares of x in part i, in double. The bits depend only on x and the
/// parts.
void part_squares(Stream& stream, const ParameterParts& parts, const float* x, double* partial);

/// One update with gradients times kernels::clip_coefficient(clip, sqrt(*squares)); values and
/// moments do not change if *squares is not finite. Memory traffic of AdamW: 28 bytes per element,
/// 30 with `working`.
void adamw_step(Stream& stream, const ParameterParts& parts, const OptimizerArrays& arrays,
                const StepNumbers* numbers, const double* squares);
void sgd_step(Stream& stream, const ParameterParts& parts, const OptimizerArrays& arrays,
              bool nesterov, const StepNumbers* numbers, const double* squares);

}  // namespace isthmus::cuda
