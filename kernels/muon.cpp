// SPDX-License-Identifier: Apache-2.0
#include "kernels/muon.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "kernels/gemm.h"
#include "kernels/muon_math.h"
#include "kernels/optimizer.h"

namespace isthmus::kernels {
namespace {
constexpr std::int64_t kBlock = 4096;  // elements per claimed index

std::int64_t scratch_values(std::int64_t rows, std::int64_t cols) {
  const std::int64_t small = std::min(rows, cols);
  return 2 * (rows * cols + small * small);
}

/// y = scale_y y + scale_x x.
void combine(ThreadTeam& team, std::int64_t n, float scale_y, float* y, float scale_x,
             const float* x) {
  team.for_blocks(n, kBlock, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = combination(scale_y, y[i], scale_x, x[i]);
  });
}

/// The direction of the step, and the momentum brought up to date.
void accumulate(ThreadTeam& team, const MuonOptions& o, std::int64_t n, const float* g,
                float* buffer, float* direction) {
  const auto keep = static_cast<float>(1 - o.momentum);
  const auto factor = static_cast<float>(o.gradient_scale);
  const bool nesterov = o.nesterov;
  team.for_blocks(n, kBlock, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      direction[i] = muon_direction(factor * g[i], keep, nesterov, buffer[i]);
    }
  });
}

/// x (rows, cols) := U S V^T with S near 1, of x = U D V^T. With G the smaller of x x^T and x^T x,
/// and P = b G + c G^2, a step is x := a x + P x or a x + x P.
void orthogonalize(ThreadTeam& team, std::int64_t rows, std::int64_t cols, float* x,
                   float* scratch) {
  const std::int64_t n = rows * cols;
  const bool tall = rows > cols;
  const std::int64_t small = tall ? cols : rows;
  const std::int64_t large = tall ? rows : cols;
  float* const product = scratch;
  float* const gram = product + n;
  float* const polynomial = gram + small * small;
  combine(team, n, newton_schulz_start(std::sqrt(squared_norm<float>(team, n, x))), x, 0, x);
  const Gemm<float> square{.m = small,
                           .n = small,
                           .k = large,
                           .a = x,
                           .lda = cols,
                           .a_transposed = tall,
                           .b = x,
                           .ldb = cols,
                           .b_transposed = !tall,
                           .c = gram,
                           .ldc = small,
                           .bf16 = true};
  const Gemm<float> fourth{.m = small,
                           .n = small,
                           .k = small,
                           .a = gram,
                           .lda = small,
                           .b = gram,
                           .ldb = small,
                           .c = polynomial,
                           .ldc = small,
                           .bf16 = true};
  const Gemm<float> apply{.m = rows,
                          .n = cols,
                          .k = small,
                          .a = tall ? x : polynomial,
                          .lda = small,
                          .b = tall ? polynomial : x,
                          .ldb = cols,
                          .c = product,
                          .ldc = cols,
                          .bf16 = true};
  for (int step = 0; step < kNewtonSchulzSteps; ++step) {
    gemm(team, square);
    gemm(team, fourth);
    combine(team, small * small, kNewtonSchulzC, polynomial, kNewtonSchulzB, gram);
    gemm(team, apply);
    combine(team, n, kNewtonSchulzA, x, 1, product);
  }
}
}  // namespace

void muon_step(ThreadTeam& team, const MuonOptions& o, std::int64_t rows, std::int64_t cols,
               float* p, const float* g, float* buffer) {
  ISTHMUS_CHECK(rows >= 1 && cols >= 1, rows, cols);
  const std::int64_t n = rows * cols;
  // gemm and squared_norm leave this slot alone.
  float* const update = team.scratch<float>(Scratch::kOperation, scratch_values(rows, cols));
  accumulate(team, o, n, g, buffer, update);
  orthogonalize(team, rows, cols, update, update + n);
  combine(team, n, static_cast<float>(1 - o.lr * o.weight_decay), p,
          static_cast<float>(-o.lr * o.update_scale), update);
}

double muon_flops(std::int64_t rows, std::int64_t cols) {
  const auto shorter = static_cast<double>(std::min(rows, cols));
  const auto longer = static_cast<double>(std::max(rows, cols));
  return kNewtonSchulzSteps * 2 * (2 * longer * shorter * shorter + shorter * shorter * shorter);
}

std::int64_t muon_scratch_bytes(std::int64_t rows, std::int64_t cols) {
  return scratch_values(rows, cols) * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace isthmus::kernels
