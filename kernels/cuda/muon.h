// SPDX-License-Identifier: Apache-2.0
// Muon on the device without host synchronisation, so that a step can be captured in a CUDA graph.
// It rounds where kernels/muon.h does, for every precision of the run: operands of matrix products
// are bfloat16, their sums and everything between products float. Elementwise arithmetic is that of
// the CPU; the sums in products and in the norm have another order, which changes last bits, and
// with them some of the roundings to bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/optimizer.h"

namespace isthmus::cuda {

class Blas;  // matmul.h cannot be compiled by nvcc

/// The options of kernels::MuonOptions that are the same in all steps and for all matrices.
struct MuonRule {
  double momentum = 0.95;
  bool nesterov = true;
};

/// A matrix (rows, cols), row-major, at `begin` in the flat arrays.
struct MuonMatrix {
  std::int64_t begin = 0;
  std::int64_t rows = 0, cols = 0;
  double weight_decay = 0;
  double update_scale = 1;
};

/// Bytes of scratch for one matrix: 6 rows cols + 10 min(rows, cols)^2.
[[nodiscard]] std::int64_t muon_scratch_bytes(std::int64_t rows, std::int64_t cols);

/// One update, kernels::muon_step, with gradients times kernels::clip_coefficient(clip,
/// sqrt(*squares)) and the rate numbers->lr. Values, momentum (arrays.first) and working copies do
/// not change if *squares is not finite. squares: on the device, the sum of squares of the
/// gradients. scratch: muon_scratch_bytes, uninitialised, aligned as a DeviceArray. Cost: 15 matrix
/// products, and memory traffic of 82 bytes per element (84 with `working`) and 80 min(rows,
/// cols)^2 bytes. DETERMINISM: the same bits in every run; another device model may add in another
/// order.
void muon_step(Stream& stream, Blas& blas, const MuonRule& rule, const MuonMatrix& matrix,
               const OptimizerArrays& arrays, const StepNumbers* numbers, const double* squares,
               std::byte* scratch);

}  // namespace isthmus::cuda
