// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/base/check.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {

void check_shape(const AttentionShape& s) {
  ISTHMUS_CHECK(s.batch >= 0 && s.seq >= 0 && s.head_dim >= 1, s.batch, s.seq, s.head_dim);
  ISTHMUS_CHECK(s.kv_heads >= 1 && s.q_heads >= 1 && s.q_heads % s.kv_heads == 0, s.q_heads,
                s.kv_heads);
  ISTHMUS_CHECK(s.window >= 0 && s.cap >= 0, s.window, s.cap);
  if (s.document_starts == nullptr) return;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    std::int64_t before = 0;
    for (std::int64_t t = 0; t < s.seq; ++t) {
      const std::int64_t first = s.first_key(b, t);
      ISTHMUS_CHECK(first >= before && first <= t, b, t, first, before);
      before = first;
    }
  }
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

template <typename Real>
Real capped(const AttentionShape& s, Real logit) {
  if (s.cap == 0) return logit;
  const Real cap = static_cast<Real>(s.cap);
  return cap * std::tanh(logit / cap);
}

// One query row of one head against the keys that it sees; the row of logits lives in `p`.
template <typename Real>
Real forward_row(const AttentionShape& s, std::int64_t b, std::int64_t t, std::int64_t h,
                 const HeadsView<const Real>& q, const HeadsView<const Real>& k,
                 const HeadsView<const Real>& v, Real* out, Real* p) {
  const std::int64_t kv = h / (s.q_heads / s.kv_heads);
  const Real scale = static_cast<Real>(s.scale);
  const std::int64_t first = s.first_key(b, t);
  for (std::int64_t u = first; u <= t; ++u) {
    p[u] = capped(s, scale * dot(s.head_dim, q.at(b, t, h), k.at(b, u, kv)));
  }
  const Real top = *std::max_element(p + first, p + t + 1);
  Real total = 0;
  for (std::int64_t u = first; u <= t; ++u) {
    p[u] = std::exp(p[u] - top);
    total += p[u];
  }
  std::fill(out, out + s.head_dim, Real{0});
  for (std::int64_t u = first; u <= t; ++u) {
    add_scaled(s.head_dim, p[u] / total, v.at(b, u, kv), out);
  }
  return top + std::log(total);
}

// All query rows of the heads that share key head kv: their gradients touch no other head's.
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
      for (std::int64_t u = s.first_key(b, t); u <= t; ++u) {
        const Real logit = capped(s, scale * dot(d, a.q.at(b, t, h), a.k.at(b, u, kv)));
        const Real p = std::exp(logit - lse);
        Real d_logit = p * (dot(d, d_out, a.v.at(b, u, kv)) - delta) * scale;
        if (s.cap != 0) {
          const Real share = logit / static_cast<Real>(s.cap);
          d_logit *= Real{1} - share * share;
        }
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
/// Heads whose size no vector code takes are widened, computed by the loops above and rounded: a
/// contiguous float copy of each view, in the order of the requests.
class Widened {
 public:
  Widened(ThreadTeam& team, const AttentionShape& s, std::int64_t views)
      : s_(s), heads_(std::max(s.q_heads, s.kv_heads)) {
    next_ = team.scratch<float>(Scratch::kPartial, views * size());
  }
  HeadsView<float> room() {
    const HeadsView<float> view = heads_in_rows(next_, s_.seq, heads_ * s_.head_dim, s_.head_dim);
    next_ += size();
    return view;
  }
  HeadsView<const float> copy(HeadsView<const Bf16> from, std::int64_t heads) {
    const HeadsView<float> to = room();
    move(from, to, heads);
    return {to.data, to.batch_stride, to.token_stride, to.head_stride};
  }
  template <typename From, typename To>
  void move(HeadsView<From> from, HeadsView<To> to, std::int64_t heads) const {
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      for (std::int64_t t = 0; t < s_.seq; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t d = 0; d < s_.head_dim; ++d) {
            to.at(b, t, h)[d] = To(from.at(b, t, h)[d]);
          }
        }
      }
    }
  }

 private:
  std::int64_t size() const { return s_.batch * s_.seq * heads_ * s_.head_dim; }
  const AttentionShape& s_;
  const std::int64_t heads_;
  float* next_ = nullptr;
};
}  // namespace

template <typename T>
void attention_forward(ThreadTeam& team, const AttentionShape& shape, HeadsView<const T> q,
                       HeadsView<const T> k, HeadsView<const T> v, HeadsView<T> out,
                       RealOf<T>* lse) {
  check_shape(shape);
  if constexpr (std::is_same_v<RealOf<T>, float>) {
    if (shape.head_dim % kAttentionDimUnit == 0) {
      fast_kernels().on<T>().attention_forward(team, shape, q, k, v, out, lse);
      return;
    }
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    Widened wide(team, shape, 4);
    const HeadsView<float> result = wide.room();
    attention_forward_reference<float>(team, shape, wide.copy(q, shape.q_heads),
                                       wide.copy(k, shape.kv_heads), wide.copy(v, shape.kv_heads),
                                       result, lse);
    wide.move(result, out, shape.q_heads);
  } else {
    attention_forward_reference(team, shape, q, k, v, out, lse);
  }
}

template <typename T>
void attention_backward(ThreadTeam& team, const AttentionShape& shape,
                        const AttentionBackward<T>& a) {
  check_shape(shape);
  if constexpr (std::is_same_v<RealOf<T>, float>) {
    if (shape.head_dim % kAttentionDimUnit == 0) {
      fast_kernels().on<T>().attention_backward(team, shape, a);
      return;
    }
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    Widened wide(team, shape, 8);
    const AttentionBackward<float> b{.q = wide.copy(a.q, shape.q_heads),
                                     .k = wide.copy(a.k, shape.kv_heads),
                                     .v = wide.copy(a.v, shape.kv_heads),
                                     .out = wide.copy(a.out, shape.q_heads),
                                     .d_out = wide.copy(a.d_out, shape.q_heads),
                                     .lse = a.lse,
                                     .d_q = wide.room(),
                                     .d_k = wide.room(),
                                     .d_v = wide.room()};
    attention_backward_reference(team, shape, b);
    wide.move(b.d_q, a.d_q, shape.q_heads);
    wide.move(b.d_k, a.d_k, shape.kv_heads);
    wide.move(b.d_v, a.d_v, shape.kv_heads);
  } else {
    attention_backward_reference(team, shape, a);
  }
}

#define ISTHMUS_INSTANTIATE_REFERENCE(Real)                                                 \
  template void attention_forward_reference(ThreadTeam&, const AttentionShape&,             \
                                            HeadsView<const Real>, HeadsView<const Real>,   \
                                            HeadsView<const Real>, HeadsView<Real>, Real*); \
  template void attention_backward_reference(ThreadTeam&, const AttentionShape&,            \
                                             const AttentionBackward<Real>&);
ISTHMUS_INSTANTIATE_REFERENCE(float)
ISTHMUS_INSTANTIATE_REFERENCE(double)
#undef ISTHMUS_INSTANTIATE_REFERENCE

#define ISTHMUS_INSTANTIATE(T)                                                            \
  template void attention_forward(ThreadTeam&, const AttentionShape&, HeadsView<const T>, \
                                  HeadsView<const T>, HeadsView<const T>, HeadsView<T>,   \
                                  RealOf<T>*);                                            \
  template void attention_backward(ThreadTeam&, const AttentionShape&, const AttentionBackward<T>&);
ISTHMUS_INSTANTIATE(Bf16)
ISTHMUS_INSTANTIATE(float)
ISTHMUS_INSTANTIATE(double)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::kernels
