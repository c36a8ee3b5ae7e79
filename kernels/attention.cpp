// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/check.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {

void check_shape(const AttentionShape& s) {
  ISTHMUS_CHECK(s.batch >= 0 && s.seq >= 0 && s.head_dim >= 1, s.batch, s.seq, s.head_dim);
  ISTHMUS_CHECK(s.kv_heads >= 1 && s.q_heads >= 1 && s.q_heads % s.kv_heads == 0, s.q_heads,
                s.kv_heads);
}

template <typename Real>
Real dot(std::int64_t n, const Real* x, const Real* y) {
  Real sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

template <typename Real>
void add_scaled(std::int64_t n, Real factor, const Real* x, Real* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

// One query row of one head against keys 0 .. t; the row of logits lives in `p`.
template <typename Real>
Real forward_row(const AttentionShape& s, std::int64_t b, std::int64_t t, std::int64_t h,
                 const HeadsView<const Real>& q, const HeadsView<const Real>& k,
                 const HeadsView<const Real>& v, Real* out, Real* p) {
  const std::int64_t kv = h / (s.q_heads / s.kv_heads);
  const Real scale = static_cast<Real>(s.scale);
  for (std::int64_t u = 0; u <= t; ++u)
    p[u] = scale * dot(s.head_dim, q.at(b, t, h), k.at(b, u, kv));
  const Real top = *std::max_element(p, p + t + 1);
  Real total = 0;
  for (std::int64_t u = 0; u <= t; ++u) {
    p[u] = std::exp(p[u] - top);
    total += p[u];
  }
  std::fill(out, out + s.head_dim, Real{0});
  for (std::int64_t u = 0; u <= t; ++u) add_scaled(s.head_dim, p[u] / total, v.at(b, u, kv), out);
  return top + std::log(total);
}

// All query rows of the heads that share key head kv: their gradients touch nobody else's.
template <typename Real>
void backward_group(const AttentionShape& s, const AttentionBackward<Real>& a, std::int64_t b,
                    std::int64_t kv) {
  const std::int64_t d = s.head_dim;
  const std::int64_t group = s.q_heads / s.kv_heads;
  const Real scale = static_cast<Real>(s.scale);
  for (std::int64_t t = 0; t < s.seq; ++t) {
    std::fill(a.d_k.at(b, t, kv), a.d_k.at(b, t, kv) + d, Real{0});
    std::fill(a.d_v.at(b, t, kv), a.d_v.at(b, t, kv) + d, Real{0});
  }
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    for (std::int64_t t = 0; t < s.seq; ++t) {
      const Real lse = a.lse[(b * s.q_heads + h) * s.seq + t];
      const Real* d_out = a.d_out.at(b, t, h);
      const Real delta = dot(d, d_out, a.out.at(b, t, h));
      Real* d_q = a.d_q.at(b, t, h);
      std::fill(d_q, d_q + d, Real{0});
      for (std::int64_t u = 0; u <= t; ++u) {
        const Real p = std::exp(scale * dot(d, a.q.at(b, t, h), a.k.at(b, u, kv)) - lse);
        const Real d_logit = p * (dot(d, d_out, a.v.at(b, u, kv)) - delta) * scale;
        add_scaled(d, d_logit, a.k.at(b, u, kv), d_q);
        add_scaled(d, d_logit, a.q.at(b, t, h), a.d_k.at(b, u, kv));
        add_scaled(d, p, d_out, a.d_v.at(b, u, kv));
      }
    }
  }
}
}  // namespace

template <typename Real>
void attention_forward_reference(ThreadTeam& team, const AttentionShape& shape,
                                 HeadsView<const Real> q, HeadsView<const Real> k,
                                 HeadsView<const Real> v, HeadsView<Real> out, Real* lse) {
  check_shape(shape);
  team.for_each(shape.batch * shape.q_heads, [&](std::int64_t index, int member) {
    const std::int64_t b = index / shape.q_heads;
    const std::int64_t h = index % shape.q_heads;
    Real* p = team.scratch<Real>(Scratch::kOperation, shape.seq, member);
    for (std::int64_t t = 0; t < shape.seq; ++t) {
      lse[index * shape.seq + t] = forward_row(shape, b, t, h, q, k, v, out.at(b, t, h), p);
    }
  });
}

template <typename Real>
void attention_backward_reference(ThreadTeam& team, const AttentionShape& shape,
                                  const AttentionBackward<Real>& a) {
  check_shape(shape);
  team.for_each(shape.batch * shape.kv_heads, [&](std::int64_t index, int) {
    backward_group(shape, a, index / shape.kv_heads, index % shape.kv_heads);
  });
}

namespace {
bool in_bf16(const AttentionShape& shape) {
  return shape.bf16 && shape.head_dim <= kAttentionMostPackedDim;
}
}  // namespace

template <typename Real>
void attention_forward(ThreadTeam& team, const AttentionShape& shape, HeadsView<const Real> q,
                       HeadsView<const Real> k, HeadsView<const Real> v, HeadsView<Real> out,
                       Real* lse) {
  if constexpr (std::is_same_v<Real, float>) {
    if (shape.head_dim % kAttentionDimUnit == 0) {
      check_shape(shape);
      const FastKernels& fast = fast_kernels();
      (in_bf16(shape) ? fast.attention_forward_bf16 : fast.attention_forward)(team, shape, q, k, v,
                                                                              out, lse);
      return;
    }
  }
  attention_forward_reference(team, shape, q, k, v, out, lse);
}

template <typename Real>
void attention_backward(ThreadTeam& team, const AttentionShape& shape,
                        const AttentionBackward<Real>& a) {
  if constexpr (std::is_same_v<Real, float>) {
    if (shape.head_dim % kAttentionDimUnit == 0) {
      check_shape(shape);
      const FastKernels& fast = fast_kernels();
      (in_bf16(shape) ? fast.attention_backward_bf16 : fast.attention_backward)(team, shape, a);
      return;
    }
  }
  attention_backward_reference(team, shape, a);
}

#define ISTHMUS_INSTANTIATE(Real)                                                                \
  template void attention_forward_reference(ThreadTeam&, const AttentionShape&,                  \
                                            HeadsView<const Real>, HeadsView<const Real>,        \
                                            HeadsView<const Real>, HeadsView<Real>, Real*);      \
  template void attention_backward_reference(ThreadTeam&, const AttentionShape&,                 \
                                             const AttentionBackward<Real>&);                    \
  template void attention_forward(ThreadTeam&, const AttentionShape&, HeadsView<const Real>,     \
                                  HeadsView<const Real>, HeadsView<const Real>, HeadsView<Real>, \
                                  Real*);                                                        \
  template void attention_backward(ThreadTeam&, const AttentionShape&,                           \
                                   const AttentionBackward<Real>&);
ISTHMUS_INSTANTIATE(float)
ISTHMUS_INSTANTIATE(double)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::kernels
