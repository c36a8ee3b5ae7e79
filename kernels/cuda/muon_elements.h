// SPDX-License-Identifier: Apache-2.0
// What muon.h does between its products, elements apart. `x` and what is no flat array: aligned as
// a DeviceArray is.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/muon.h"
#include "kernels/cuda/optimizer.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// Brings the momentum up to date; x (rows, cols) := the direction of the step. Neither where
/// *squares is not finite.
void muon_direction(Stream& stream, const MuonRule& rule, const MuonMatrix& matrix,
                    const OptimizerArrays& arrays, const StepNumbers* numbers,
                    const double* squares, float* x);

/// Before a step of Newton-Schulz: rounded := x, and x := a x, to which the step's last product is
/// added. squares: of x, before the first step, by which x is normed first; else null. (n,).
void newton_schulz_round(Stream& stream, std::int64_t n, const double* squares, float* x,
                         Bf16* rounded);

/// p := b gram + c fourth, rounded; (n,).
void newton_schulz_polynomial(Stream& stream, std::int64_t n, const float* gram,
                              const float* fourth, Bf16* p);

/// The values' decay, and their step along x. Nothing where *squares is not finite.
void muon_update(Stream& stream, const MuonMatrix& matrix, const OptimizerArrays& arrays,
                 const StepNumbers* numbers, const double* squares, const float* x);

}  // namespace isthmus::cuda
