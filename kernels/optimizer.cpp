// SPDX-License-Identifier: Apache-2.0
#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/base/check.h"
#include "kernels/fast_kernels.h"
#include "kernels/optimizer_math.h"

namespace isthmus::kernels {
namespace {
constexpr std::int64_t kBlock = 4096;  // elements per partial sum and per claimed index
constexpr double kClipEpsilon = 1e-6;
}  // namespace

double clip_coefficient(double clip, double norm) {
  return clip == 0 ? 1.0 : std::min(1.0, clip / (norm + kClipEpsilon));
}

template <typename Real>
void adamw_step(ThreadTeam& team, const AdamWOptions& o, std::int64_t n, Real* p, const Real* g,
                Real* m, Real* v) {
  ISTHMUS_CHECK(o.step >= 1, o.step);
  const AdamWConstants<Real> k(o);
  team.for_blocks(n, kBlock, [=](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<Real, float>) {
      fast_kernels().adamw_span(k, end - begin, p + begin, g + begin, m + begin, v + begin);
    } else {
      for (std::int64_t i = begin; i < end; ++i) {
        const Real gradient = k.factor * g[i];
        m[i] += k.keep1 * (gradient - m[i]);
        v[i] = k.beta2 * v[i] + k.keep2 * gradient * gradient;
        p[i] = p[i] * k.decay - k.rate * (m[i] / (std::sqrt(v[i]) / k.root + k.eps));
      }
    }
  });
}

template <typename Real>
void sgd_step(ThreadTeam& team, const SgdOptions& o, std::int64_t n, Real* p, const Real* g,
              Real* buffer) {
  ISTHMUS_CHECK(o.momentum == 0 || buffer != nullptr, o.momentum);
  const Real rate = static_cast<Real>(o.lr);
  const Real momentum = static_cast<Real>(o.momentum);
  const Real decay = static_cast<Real>(o.weight_decay);
  const Real factor = static_cast<Real>(o.gradient_scale);
  team.for_blocks(n, kBlock, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Real gradient = factor * g[i] + decay * p[i];
      Real direction = gradient;
      if (momentum != 0) {
        buffer[i] = o.first_step ? gradient : momentum * buffer[i] + gradient;
        direction = o.nesterov ? gradient + momentum * buffer[i] : buffer[i];
      }
      p[i] -= rate * direction;
    }
  });
}

template <typename Real>
double squared_norm(ThreadTeam& team, std::int64_t n, const Real* x) {
  const std::int64_t blocks = (n + kBlock - 1) / kBlock;
  double* partial = team.scratch<double>(Scratch::kPartial, blocks);
  team.for_each(blocks, [=](std::int64_t block, int) {
    const std::int64_t begin = block * kBlock;
    const std::int64_t end = std::min(n, begin + kBlock);
    if constexpr (std::is_same_v<Real, float>) {
      partial[block] = fast_kernels().squares_span(end - begin, x + begin);
    } else {
      partial[block] = 0;
      for (std::int64_t i = begin; i < end; ++i) partial[block] += x[i] * x[i];
    }
  });
  double total = 0;
  for (std::int64_t block = 0; block < blocks; ++block) total += partial[block];
  return total;
}

#define ISTHMUS_INSTANTIATE(Real)                                                                  \
  template void adamw_step(ThreadTeam&, const AdamWOptions&, std::int64_t, Real*, const Real*,     \
                           Real*, Real*);                                                          \
  template void sgd_step(ThreadTeam&, const SgdOptions&, std::int64_t, Real*, const Real*, Real*); \
  template double squared_norm(ThreadTeam&, std::int64_t, const Real*);
ISTHMUS_INSTANTIATE(float)
ISTHMUS_INSTANTIATE(double)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::kernels
