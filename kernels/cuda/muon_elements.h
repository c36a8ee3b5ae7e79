// SPDX-License-Identifier: Apache-2.0
// Elementwise work of muon.h between its matrix products. Alignment of `x` and of arrays other than
// the flat ones: that of a DeviceArray.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/muon.h"
#include "kernels/cuda/optimizer.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// Updates the momentum; x (rows, cols) := the direction of the step. Does nothing if *squares is
/// not finite.
void muon_direction(Stream& stream, const MuonRule& rule, const MuonMatrix& matrix,
                    const OptimizerArrays& arrays, const StepNumbers* numbers,
                    const double* squares, float* x);

/// Before a step of Newton-Schulz: rounded := x, and x := a x, to which the step's last product is
/// added. squares: before the first step, the sum of squares of x, which is normalised by it; else
/// null. (n,).
void newton_schulz_round(Stream& stream, std::int64_t n, const double* squares, float* x,
                         Bf16* rounded);

/// p := b gram + c fourth, rounded; (n,).
void newton_schulz_polynomial(Stream& stream, std::int64_t n, const float* gram,
                              const float* fourth, Bf16* p);

/// Decays the values and updates them along x. Does nothing if *squares is not finite.
void muon_update(Stream& stream, const MuonMatrix& matrix, const OptimizerArrays& arrays,
                 const StepNumbers* numbers, const double* squares, const float* x);

}  // namespace isthmus::cuda
