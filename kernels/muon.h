// SPDX-License-Identifier: Apache-2.0
// Muon (K. Jordan, kellerjordan.github.io/posts/muon) as in torch.optim.Muon. The update of a
// matrix is its momentum after five Newton-Schulz steps, which bring it near the closest matrix
// with orthonormal rows or columns. Matrix products have bfloat16 operands and float sums; unlike
// in torch, values between products stay float. The caller owns all memory.
#pragma once

#include <cstdint>

#include "kernels/thread_team.h"

namespace isthmus::kernels {

struct MuonOptions {
  double lr = 0, momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0;    // decoupled: p *= 1 - lr * weight_decay first
  double update_scale = 1;    // p -= lr * update_scale * O
  double gradient_scale = 1;  // multiplies the gradient (clipping)
};

/// b += (1 - momentum) (g - b); d = nesterov ? g + momentum (b - g) : b; O = orthogonalised d, with
/// singular values of about 0.7 to 1.2 where d's exceed 2e-3 of its norm; zero stays zero.
/// p, g, buffer: (rows, cols) row-major; buffer starts as zeros. A matrix and its transpose get the
/// same update up to rounding.
/// DETERMINISM: bits do not depend on the team's size; they differ between instruction sets.
void muon_step(ThreadTeam& team, const MuonOptions& options, std::int64_t rows, std::int64_t cols,
               float* p, const float* g, float* buffer);

/// Floating-point operations of its matrix products: five times 2 (2 long short^2 + short^3).
[[nodiscard]] double muon_flops(std::int64_t rows, std::int64_t cols);

/// Bytes of scratch that a team holds after muon_step on a matrix of this shape.
[[nodiscard]] std::int64_t muon_scratch_bytes(std::int64_t rows, std::int64_t cols);

}  // namespace isthmus::kernels
