// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding in the half-split form of Hugging Face's Llama (Su et al.
// arXiv:2104.09864): with h = head_dim / 2 and angle (t, i) = t * theta^(-i/h),
//   x'[i] = x[i] cos - x[i+h] sin,   x'[i+h] = x[i+h] cos + x[i] sin,   0 <= i < h.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention.h"
#include "kernels/thread_team.h"

namespace isthmus::kernels {

/// cosine, sine: (seq, head_dim / 2), angles computed in double. REQUIRES: head_dim even.
template <typename Real>
void rotary_table(std::int64_t seq, std::int64_t head_dim, double theta, Real* cosine, Real* sine);
/// The same for given frequencies, (seq, frequencies.size()); cosines and sines are multiplied by
/// `amplitude`.
template <typename Real>
void rotary_table(std::int64_t seq, std::span<const double> frequencies, double amplitude,
                  Real* cosine, Real* sine);

/// Rotates x (batch, seq, heads, head_dim) in place by the tables. T: double, float or Bf16.
/// starts: (batch, seq), for each row the index of the row at position 0; null: the sequence's
/// first.
template <typename T>
void rotary_forward(ThreadTeam& team, std::int64_t batch, std::int64_t seq, std::int64_t heads,
                    std::int64_t head_dim, HeadsView<T> x, const RealOf<T>* cosine,
                    const RealOf<T>* sine, const std::int32_t* starts = nullptr);

/// Rotates the gradient back, in place (the transpose of a rotation is its inverse).
template <typename T>
void rotary_backward(ThreadTeam& team, std::int64_t batch, std::int64_t seq, std::int64_t heads,
                     std::int64_t head_dim, HeadsView<T> dx, const RealOf<T>* cosine,
                     const RealOf<T>* sine, const std::int32_t* starts = nullptr);

}  // namespace isthmus::kernels
