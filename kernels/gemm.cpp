// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/base/check.h"
#include "kernels/activation_math.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {

template <typename Real>
void check_shapes(const Gemm<Real>& g) {
  ISTHMUS_CHECK(g.m >= 0 && g.n >= 0 && g.k >= 0, g.m, g.n, g.k);
  ISTHMUS_CHECK(g.lda >= (g.a_transposed ? g.m : g.k), g.lda, g.m, g.k);
  ISTHMUS_CHECK(g.ldb >= (g.b_transposed ? g.k : g.n), g.ldb, g.n, g.k);
  ISTHMUS_CHECK(g.ldc >= g.n, g.ldc, g.n);
  ISTHMUS_CHECK(g.column_sum == nullptr || !g.b_transposed, g.n);
  ISTHMUS_CHECK(g.residual == nullptr || g.ldr >= g.n, g.ldr, g.n);
  ISTHMUS_CHECK(g.residual == nullptr || g.c.is_bf16() || g.residual != g.c.template as<Real>());
  const bool narrow = g.c.is_bf16();
  ISTHMUS_CHECK(g.bf16 || !(g.a.is_bf16() || g.b.is_bf16() || narrow), g.m, g.n, g.k);
  ISTHMUS_CHECK(!narrow || !g.accumulate, g.m, g.n);
  ISTHMUS_CHECK(g.factor == nullptr || g.factor.is_bf16() == narrow, narrow);
  ISTHMUS_CHECK(g.gelu_out == nullptr || g.gelu_out.is_bf16() == narrow, narrow);
}

template <typename Real>
Real round_to_bf16(Real x) {
  return static_cast<Real>(static_cast<float>(Bf16(static_cast<float>(x))));
}

template <typename Real>
Real dot(const Gemm<Real>& g, std::int64_t i, std::int64_t j) {
  Real sum = 0;
  for (std::int64_t p = 0; p < g.k; ++p) {
    const Real a = g.a_transposed ? g.a[p * g.lda + i] : g.a[i * g.lda + p];
    const Real b = g.b_transposed ? g.b[j * g.ldb + p] : g.b[p * g.ldb + j];
    sum += g.bf16 ? round_to_bf16(a) * round_to_bf16(b) : a * b;
  }
  return sum;
}

template <typename Real>
void reference_row(const Gemm<Real>& g, std::int64_t i) {
  for (std::int64_t j = 0; j < g.n; ++j) {
    const std::int64_t at = i * g.ldc + j;
    Real value = dot(g, i, j);
    if (g.accumulate) value += g.c[at];
    if (g.bias != nullptr) value += g.bias[j];
    if (g.residual != nullptr) value += g.residual[i * g.ldr + j];
    if (g.factor != nullptr) value *= g.factor[at];
    g.c.set(at, g.gelu_out != nullptr ? gelu_derivative(value) : value);
    if (g.gelu_out != nullptr) g.gelu_out.set(at, gelu(value));
  }
}
}  // namespace

template <typename Real>
void gemm_reference(ThreadTeam& team, const Gemm<Real>& g) {
  check_shapes(g);
  team.for_each(g.m, [&](std::int64_t i, int) { reference_row(g, i); });
  if (g.column_sum == nullptr) return;
  team.for_each(g.n, [&](std::int64_t j, int) {
    for (std::int64_t p = 0; p < g.k; ++p) {
      g.column_sum[j] += g.b[p * g.ldb + j];
    }
  });
}

template <typename Real>
void gemm(ThreadTeam& team, const Gemm<Real>& g) {
  if constexpr (std::is_same_v<Real, float>) {
    check_shapes(g);
    (g.bf16 ? fast_kernels().gemm_bf16 : fast_kernels().gemm)(team, g);
  } else {
    gemm_reference(team, g);
  }
}

template void gemm_reference(ThreadTeam&, const Gemm<float>&);
template void gemm_reference(ThreadTeam&, const Gemm<double>&);
template void gemm(ThreadTeam&, const Gemm<float>&);
template void gemm(ThreadTeam&, const Gemm<double>&);

}  // namespace isthmus::kernels
