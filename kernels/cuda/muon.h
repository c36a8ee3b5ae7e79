// SPDX-License-Identifier: Apache-2.0
// Muon on the device with no word from the host in between, so that a step can be a graph. It
// rounds where kernels/muon.h does, whatever the precision of the run: operands of products are
// bfloat16, their sums and all that lies between products float. Elements have the CPU's
// arithmetic; the sums of products and of the norm are added in another order, which changes last
// bits, and with them a few of the roundings to bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/optimizer.h"

namespace isthmus::cuda {

class Blas;  // matmul.h is not for nvcc

/// What kernels::MuonOptions has besides, which is the same in all steps.
struct MuonRule {
  double momentum = 0.95;
  bool nesterov = true;
};

/// (rows, cols) row-major from `begin` on in the flat arrays.
struct MuonMatrix {
  std::int64_t begin = 0;
  std::int64_t rows = 0, cols = 0;
  double weight_decay = 0;
  double update_scale = 1;
};

/// Bytes of scratch of one matrix: 6 a value and 10 for each of its shorter side's square.
[[nodiscard]] std::int64_t muon_scratch_bytes(std::int64_t rows, std::int64_t cols);

/// One update, kernels::muon_step, with gradients times kernels::clip_coefficient(clip,
/// sqrt(*squares)) and the rate numbers->lr; values, momentum (arrays.first) and working copies
/// stay as they are where *squares is not finite. scratch: muon_scratch_bytes in any state, aligned
/// as a DeviceArray is. 15 products; beside them 82 bytes moved an element, 84 with `working`, and
/// five times 16 for each of the shorter side's square.
/// DETERMINISM: the same bits in every run; on another kind of device cuBLASLt may add otherwise.
void muon_step(Stream& stream, Blas& blas, const MuonRule& rule, const MuonMatrix& matrix,
               const OptimizerArrays& arrays, const StepNumbers* numbers, const double* squares,
               std::byte* scratch);

}  // namespace isthmus::cuda
