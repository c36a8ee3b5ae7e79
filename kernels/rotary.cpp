// SPDX-License-Identifier: Apache-2.0
#include "kernels/rotary.h"

#include <cmath>
#include <type_traits>
#include <vector>

#include "core/base/check.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {

// direction +1 rotates by the angle, -1 back.
template <typename T>
void rotate(ThreadTeam& team, std::int64_t batch, std::int64_t seq, std::int64_t heads,
            std::int64_t head_dim, HeadsView<T> x, const RealOf<T>* cosine, const RealOf<T>* sine,
            const std::int32_t* starts, RealOf<T> direction) {
  ISTHMUS_CHECK(head_dim % 2 == 0, head_dim);
  const std::int64_t half = head_dim / 2;
  team.for_blocks(batch * seq, 32, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t t = row % seq;
      const std::int64_t position = starts == nullptr ? t : t - starts[row];
      for (std::int64_t h = 0; h < heads; ++h) {
        T* low = x.at(row / seq, t, h);
        T* high = low + half;
        if constexpr (std::is_same_v<RealOf<T>, float>) {
          fast_kernels().on<T>().rotate_span(half, cosine + position * half, sine + position * half,
                                             direction, low, high);
        } else {
          for (std::int64_t i = 0; i < half; ++i) {
            const T c = cosine[position * half + i];
            const T s = direction * sine[position * half + i];
            const T rotated = low[i] * c - high[i] * s;
            high[i] = high[i] * c + low[i] * s;
            low[i] = rotated;
          }
        }
      }
    }
  });
}
}  // namespace

template <typename Real>
void rotary_table(std::int64_t seq, std::int64_t head_dim, double theta, Real* cosine, Real* sine) {
  ISTHMUS_CHECK(head_dim % 2 == 0, head_dim);
  std::vector<double> frequencies(static_cast<std::size_t>(head_dim / 2));
  const auto half = static_cast<double>(frequencies.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -static_cast<double>(i) / half);
  }
  rotary_table<Real>(seq, frequencies, 1, cosine, sine);
}

template <typename Real>
void rotary_table(std::int64_t seq, std::span<const double> frequencies, double amplitude,
                  Real* cosine, Real* sine) {
  const auto half = static_cast<std::int64_t>(frequencies.size());
  for (std::int64_t i = 0; i < half; ++i) {
    for (std::int64_t t = 0; t < seq; ++t) {
      const double angle = static_cast<double>(t) * frequencies[static_cast<std::size_t>(i)];
      cosine[t * half + i] = static_cast<Real>(amplitude * std::cos(angle));
      sine[t * half + i] = static_cast<Real>(amplitude * std::sin(angle));
    }
  }
}

template <typename T>
void rotary_forward(ThreadTeam& team, std::int64_t batch, std::int64_t seq, std::int64_t heads,
                    std::int64_t head_dim, HeadsView<T> x, const RealOf<T>* cosine,
                    const RealOf<T>* sine, const std::int32_t* starts) {
  rotate(team, batch, seq, heads, head_dim, x, cosine, sine, starts, RealOf<T>{1});
}

template <typename T>
void rotary_backward(ThreadTeam& team, std::int64_t batch, std::int64_t seq, std::int64_t heads,
                     std::int64_t head_dim, HeadsView<T> dx, const RealOf<T>* cosine,
                     const RealOf<T>* sine, const std::int32_t* starts) {
  rotate(team, batch, seq, heads, head_dim, dx, cosine, sine, starts, RealOf<T>{-1});
}

template void rotary_table(std::int64_t, std::int64_t, double, float*, float*);
template void rotary_table(std::int64_t, std::int64_t, double, double*, double*);
template void rotary_table(std::int64_t, std::span<const double>, double, float*, float*);
template void rotary_table(std::int64_t, std::span<const double>, double, double*, double*);
#define ISTHMUS_INSTANTIATE(T)                                                                  \
  template void rotary_forward(ThreadTeam&, std::int64_t, std::int64_t, std::int64_t,           \
                               std::int64_t, HeadsView<T>, const RealOf<T>*, const RealOf<T>*,  \
                               const std::int32_t*);                                            \
  template void rotary_backward(ThreadTeam&, std::int64_t, std::int64_t, std::int64_t,          \
                                std::int64_t, HeadsView<T>, const RealOf<T>*, const RealOf<T>*, \
                                const std::int32_t*);
ISTHMUS_INSTANTIATE(Bf16)
ISTHMUS_INSTANTIATE(float)
ISTHMUS_INSTANTIATE(double)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::kernels
