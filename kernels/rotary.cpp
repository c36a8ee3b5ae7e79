// SPDX-License-Identifier: Apache-2.0
#include "kernels/rotary.h"

#include <cmath>
#include <type_traits>

#include "core/check.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {

// direction +1 rotates by the angle, -1 back.
template <typename Real>
void rotate(ThreadTeam& team, std::int64_t batch, std::int64_t seq, std::int64_t heads,
            std::int64_t head_dim, HeadsView<Real> x, const Real* cosine, const Real* sine,
            Real direction) {
  ISTHMUS_CHECK(head_dim % 2 == 0, head_dim);
  const std::int64_t half = head_dim / 2;
  team.for_blocks(batch * seq, 32, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t t = row % seq;
      for (std::int64_t h = 0; h < heads; ++h) {
        Real* low = x.at(row / seq, t, h);
        Real* high = low + half;
        if constexpr (std::is_same_v<Real, float>) {
          fast_kernels().rotate_span(half, cosine + t * half, sine + t * half, direction, low,
                                     high);
          continue;
        }
        for (std::int64_t i = 0; i < half; ++i) {
          const Real c = cosine[t * half + i];
          const Real s = direction * sine[t * half + i];
          const Real rotated = low[i] * c - high[i] * s;
          high[i] = high[i] * c + low[i] * s;
          low[i] = rotated;
        }
      }
    }
  });
}
}  // namespace

template <typename Real>
void rotary_table(std::int64_t seq, std::int64_t head_dim, double theta, Real* cosine, Real* sine) {
  ISTHMUS_CHECK(head_dim % 2 == 0, head_dim);
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
    for (std::int64_t t = 0; t < seq; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      cosine[t * half + i] = static_cast<Real>(std::cos(angle));
      sine[t * half + i] = static_cast<Real>(std::sin(angle));
    }
  }
}

template <typename Real>
void rotary_forward(ThreadTeam& team, std::int64_t batch, std::int64_t seq, std::int64_t heads,
                    std::int64_t head_dim, HeadsView<Real> x, const Real* cosine,
                    const Real* sine) {
  rotate(team, batch, seq, heads, head_dim, x, cosine, sine, Real{1});
}

template <typename Real>
void rotary_backward(ThreadTeam& team, std::int64_t batch, std::int64_t seq, std::int64_t heads,
                     std::int64_t head_dim, HeadsView<Real> dx, const Real* cosine,
                     const Real* sine) {
  rotate(team, batch, seq, heads, head_dim, dx, cosine, sine, Real{-1});
}

#define ISTHMUS_INSTANTIATE(Real)                                                        \
  template void rotary_table(std::int64_t, std::int64_t, double, Real*, Real*);          \
  template void rotary_forward(ThreadTeam&, std::int64_t, std::int64_t, std::int64_t,    \
                               std::int64_t, HeadsView<Real>, const Real*, const Real*); \
  template void rotary_backward(ThreadTeam&, std::int64_t, std::int64_t, std::int64_t,   \
                                std::int64_t, HeadsView<Real>, const Real*, const Real*);
ISTHMUS_INSTANTIATE(float)
ISTHMUS_INSTANTIATE(double)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::kernels
