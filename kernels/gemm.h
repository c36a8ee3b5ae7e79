// SPDX-License-Identifier: Apache-2.0
// Matrix product with the epilogues a transformer needs, on matrices given by pointer and leading
// dimension. The three products of a linear layer y = x W^T + b, W (out, in), x (rows, in):
//   y   = x W^T   a = x,  b = W, b_transposed          m = rows, n = out, k = in
//   dx  = dy W    a = dy, b = W                        m = rows, n = in,  k = out
//   dW += dy^T x  a = dy, a_transposed, b = x          m = out,  n = in,  k = rows
// and with W stored (in, out), as GPT-2's Conv1D does:
//   y   = x W     a = x,  b = W
//   dx  = dy W^T  a = dy, b = W, b_transposed
//   dW += x^T dy  a = x,  a_transposed, b = dy         column_sum = db
// The caller owns all memory. Any thread may drive its own team.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/thread_team.h"

namespace isthmus::kernels {

/// C (m, n) = op(A) (m, k) times op(B) (k, n), then, in this order and each only if requested:
///   + C (accumulate), + bias[j], + residual[i, j], times factor[i, j];
///   then gelu_out[i, j] = gelu(C[i, j]) and C[i, j] = gelu'(C[i, j]), the factor that the backward
///   pass needs: one exponential gives both, and the pre-activation is not needed again.
/// A, B, C and the arrays of C's shape may each be stored as bfloat16; sums and epilogues are Real
/// in every case, and C is rounded once, at the end.
template <typename Real>
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  Stored<const Real> a;  // (m, k) with rows lda apart; (k, m) when a_transposed
  std::int64_t lda = 0;
  bool a_transposed = false;
  Stored<const Real> b;  // (k, n) with rows ldb apart; (n, k) when b_transposed
  std::int64_t ldb = 0;
  bool b_transposed = false;
  Stored<Real> c;  // (m, n) with rows ldc apart
  std::int64_t ldc = 0;
  bool accumulate = false;
  const Real* bias = nullptr;      // (n,)
  const Real* residual = nullptr;  // (m, n) with rows ldr apart; not c
  std::int64_t ldr = 0;
  Stored<const Real> factor;   // (m, n), rows ldc apart, stored as C is
  Stored<Real> gelu_out;       // the same
  Real* column_sum = nullptr;  // (n,): column_sum[j] += sum over k of B[k, j]; b not transposed
  /// A and B are rounded to bfloat16 before they are multiplied; sums and epilogues are Real.
  bool bf16 = false;
};

/// REQUIRES: m, n, k >= 0; leading dimensions at least the row length; column_sum only with b not
/// transposed; a Bf16 operand or C only with bf16, and no accumulation into such a C; C, gelu_out
/// and the sums overlap no input. With k = 0 the product is zero. DETERMINISM: the sum over k has
/// an order fixed by the shape, for every team size; for float it differs between instruction sets.
template <typename Real>
void gemm(ThreadTeam& team, const Gemm<Real>& g);

/// Plain loops for the same contract: the oracle of tests, and the implementation for double.
template <typename Real>
void gemm_reference(ThreadTeam& team, const Gemm<Real>& g);

}  // namespace isthmus::kernels
