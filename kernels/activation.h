// SPDX-License-Identifier: Apache-2.0
// SwiGLU and other gated activations (Shazeer arXiv:2002.05202). GPT-2's GELU is an epilogue of
// gemm.h, which saves a pass over memory; here it is a separate function, for recomputation.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/thread_team.h"

namespace isthmus::kernels {

/// (rows, columns) halves of a gated layer. Rows of `gate` and `up` are ld_in elements apart (ld_in
/// = 2 * columns in a fused [gate | up] buffer), rows of out and d_out ld_out. T: double, float or
/// Bf16.
template <typename T>
struct SwiGlu {
  std::int64_t rows = 0, columns = 0;
  const T* gate = nullptr;
  const T* up = nullptr;
  std::int64_t ld_in = 0;
  std::int64_t ld_out = 0;
};

/// out = silu(gate) * up, silu(x) = x / (1 + exp(-x)).
template <typename T>
void swiglu_forward(ThreadTeam& team, const SwiGlu<T>& s, T* out);
/// d_gate, d_up: rows ld_in apart, overwritten; they may be gate and up themselves.
template <typename T>
void swiglu_backward(ThreadTeam& team, const SwiGlu<T>& s, const T* d_out, T* d_gate, T* d_up);

/// The activation between a feed-forward layer's matrix products. `gelu_tanh` is the formula of
/// activation_math.h's gelu; `gelu` uses the error function.
enum class Activation { kSilu, kGeluTanh, kGelu };

/// out = act(gate) * up, or act(gate) if `up` is null. kSilu with `up` is swiglu_forward, with
/// vector code; all others are plain loops.
template <typename T>
void activation_forward(ThreadTeam& team, Activation act, const SwiGlu<T>& s, T* out);
/// As swiglu_backward; if `up` is null, `d_up` is not used.
template <typename T>
void activation_backward(ThreadTeam& team, Activation act, const SwiGlu<T>& s, const T* d_out,
                         T* d_gate, T* d_up);

/// sums[j] += sum over the rows of x[r, j]; x (rows, columns) with rows ld apart: the gradient of a
/// bias. DETERMINISM: sums are over blocks of rows fixed by the shape, in order, so no bit depends
/// on the team's size.
template <typename T>
void add_column_sums(ThreadTeam& team, std::int64_t rows, std::int64_t columns, const T* x,
                     std::int64_t ld, RealOf<T>* sums);

/// value[i] = gelu(x[i]) and, unless null, slope[i] = gelu'(x[i]), with the bits of gemm.h's
/// epilogue on the same x; slope may be x itself. Real: double or float.
template <typename Real>
void gelu_values(ThreadTeam& team, std::int64_t n, const Real* x, Real* value, Real* slope);

}  // namespace isthmus::kernels
