// SPDX-License-Identifier: Apache-2.0
// AdamW, SGD, gradient norm and clipping on the device with no word from the host in between, so
// that a step can be a graph: what changes from step to step lies in device memory. The arithmetic
// of an element is that of kernels/optimizer.h, each product and sum rounded apart: with the same
// gradients and clip coefficient, the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"
#include "kernels/optimizer.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// What a step's kernels read; copied to the device before each step. Filled by step_numbers.
struct StepNumbers {
  float keep1, beta2, keep2, rate, root, eps, momentum;  // AdamWConstants; rate: of SGD lr
  double clip;                                           // largest norm; 0: off, and
  float factor;                                          // multiplies the gradients
  double lr;
  std::int64_t updates;  // this one's number, from 1
};
/// clip: as above, and a factor of 1.
[[nodiscard]] StepNumbers adamw_numbers(const kernels::AdamWOptions& options, double clip);
[[nodiscard]] StepNumbers sgd_numbers(const kernels::SgdOptions& options, std::int64_t update,
                                      double clip);

/// Neighbouring values with one weight decay.
struct ParameterRun {
  std::int64_t begin = 0, n = 0;  // of the flat arrays
  double weight_decay = 0;
  std::int64_t left_out = 0;  // of the values before it, those that have no place in `second`
};
/// `runs` cut into parts of 16384 values at most, of which a kernel's blocks take one each: all
/// runs of a model are one launch.
[[nodiscard]] std::vector<ParameterRun> parts_of(std::span<const ParameterRun> runs);
/// The same in the device's memory.
struct ParameterParts {
  const ParameterRun* data = nullptr;
  std::int64_t count = 0;
};

/// Flat arrays in canonical order, on the device; (n,) each but for what is left out.
struct OptimizerArrays {
  float* values = nullptr;
  const float* gradients = nullptr;
  float* first = nullptr;   // m, or SGD's buffer
  float* second = nullptr;  // v, of what is not left out alone
  Bf16* working = nullptr;  // the values rounded, for products; null: not wanted
};

/// squares := the sum of squares of x (n,), in double. scratch: squared_norm_scratch(n) doubles.
/// DETERMINISM: sums are a tree that n alone gives, so devices have the same bits in every run.
/// They are not those of kernels::squared_norm, whose order is one thread's work: rounding of
/// double.
[[nodiscard]] std::size_t squared_norm_scratch(std::int64_t n);
void squared_norm(Stream& stream, std::int64_t n, const float* x, double* squares, double* scratch);

/// partial[i] := the sum of squares of x in part i, in double. The bits depend on x and the parts
/// alone.
void part_squares(Stream& stream, const ParameterParts& parts, const float* x, double* partial);

/// One update with gradients times kernels::clip_coefficient(clip, sqrt(*squares)); values and
/// moments stay as they are where *squares is not finite. 28 bytes moved an element, 30 with
/// `working`.
void adamw_step(Stream& stream, const ParameterParts& parts, const OptimizerArrays& arrays,
                const StepNumbers* numbers, const double* squares);
void sgd_step(Stream& stream, const ParameterParts& parts, const OptimizerArrays& arrays,
              bool nesterov, const StepNumbers* numbers, const double* squares);

}  // namespace isthmus::cuda
