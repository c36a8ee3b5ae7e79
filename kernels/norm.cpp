// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/base/check.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {
constexpr std::int64_t kBlockRows = 32;  // rows per partial sum of the weight gradients

enum class Kind { kLayer, kRms };

template <typename Real>
void forward_row(Kind kind, const NormForward<Real>& f, std::int64_t r) {
  const std::int64_t c = f.channels;
  const Real* s = f.x + r * c;
  Real mean = 0;
  if (kind == Kind::kLayer) {
    for (std::int64_t i = 0; i < c; ++i) mean += s[i];
    mean /= static_cast<Real>(c);
    f.mean[r] = mean;
  }
  Real squares = 0;
  for (std::int64_t i = 0; i < c; ++i) squares += (s[i] - mean) * (s[i] - mean);
  const Real rstd = Real{1} / std::sqrt(squares / static_cast<Real>(c) + static_cast<Real>(f.eps));
  f.rstd[r] = rstd;
  const Real offset = static_cast<Real>(f.weight_offset);
  for (std::int64_t i = 0; i < c; ++i) {
    const Real y = (s[i] - mean) * rstd * (f.weight[i] + offset);
    f.y[r * c + i] = f.bias == nullptr ? y : y + f.bias[i];
  }
}

// With n = (s - mean) rstd and g = dy weight:  ds = rstd (g - mean(g) - n mean(g n)); RMSNorm has
// no mean(g) term.
template <typename Real>
void backward_row(Kind kind, const NormBackward<Real>& n, std::int64_t r, Real* d_weight,
                  Real* d_bias) {
  const std::int64_t c = n.channels;
  const Real* dy = n.dy + r * c;
  const Real* s = n.s + r * c;
  const Real mean = kind == Kind::kLayer ? n.mean[r] : Real{0};
  const Real rstd = n.rstd[r];
  const Real offset = static_cast<Real>(n.weight_offset);
  Real sum_g = 0;
  Real sum_gn = 0;
  for (std::int64_t i = 0; i < c; ++i) {
    const Real normal = (s[i] - mean) * rstd;
    const Real g = dy[i] * (n.weight[i] + offset);
    sum_g += g;
    sum_gn += g * normal;
    d_weight[i] += dy[i] * normal;
    if (d_bias != nullptr) d_bias[i] += dy[i];
  }
  const Real mean_g = kind == Kind::kLayer ? sum_g / static_cast<Real>(c) : Real{0};
  const Real mean_gn = sum_gn / static_cast<Real>(c);
  for (std::int64_t i = 0; i < c; ++i) {
    const Real normal = (s[i] - mean) * rstd;
    const Real d = rstd * (dy[i] * (n.weight[i] + offset) - mean_g - normal * mean_gn);
    n.ds[r * c + i] = n.d_sum == nullptr ? d : n.d_sum[r * c + i] + d;
  }
}

template <typename T, typename Stream>
const NormKernels<T, Stream>& norm_kernels() {
  const StoredKernels<T>& kernels = fast_kernels().on<T>();
  if constexpr (std::is_same_v<Stream, float>) {
    return kernels.norm;
  } else {
    return kernels.head_norm;
  }
}

template <typename T, typename Stream>
void forward(Kind kind, ThreadTeam& team, const NormForward<T, Stream>& f) {
  ISTHMUS_CHECK(f.channels >= 1, f.channels);
  team.for_blocks(f.rows, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<RealOf<T>, float>) {
      norm_kernels<T, Stream>().forward(kind == Kind::kLayer, f, begin, end);
    } else {
      for (std::int64_t r = begin; r < end; ++r) forward_row(kind, f, r);
    }
  });
}

template <typename T, typename Stream>
void backward(Kind kind, ThreadTeam& team, const NormBackward<T, Stream>& n) {
  using Real = RealOf<T>;
  ISTHMUS_CHECK(n.channels >= 1, n.channels);
  const std::int64_t c = n.channels;
  const std::int64_t blocks = (n.rows + kBlockRows - 1) / kBlockRows;
  Real* partial = team.scratch<Real>(Scratch::kPartial, blocks * 2 * c);
  team.for_each(blocks, [&](std::int64_t block, int) {
    Real* d_weight = partial + block * 2 * c;
    Real* d_bias = n.d_bias == nullptr ? nullptr : d_weight + c;
    std::fill(d_weight, d_weight + 2 * c, Real{0});
    const std::int64_t end = std::min(n.rows, (block + 1) * kBlockRows);
    if constexpr (std::is_same_v<RealOf<T>, float>) {
      norm_kernels<T, Stream>().backward(kind == Kind::kLayer, n, block * kBlockRows, end, d_weight,
                                         d_bias);
    } else {
      for (std::int64_t r = block * kBlockRows; r < end; ++r) {
        backward_row(kind, n, r, d_weight, d_bias);
      }
    }
  });
  for (std::int64_t block = 0; block < blocks; ++block) {
    const Real* d_weight = partial + block * 2 * c;
    for (std::int64_t i = 0; i < c; ++i) {
      if (n.d_weight != nullptr) n.d_weight[i] += d_weight[i];
      if (n.d_bias != nullptr) n.d_bias[i] += d_weight[c + i];
    }
  }
}
}  // namespace

template <typename T, typename Stream>
void layer_norm_forward(ThreadTeam& team, const NormForward<T, Stream>& norm) {
  forward(Kind::kLayer, team, norm);
}
template <typename T, typename Stream>
void layer_norm_backward(ThreadTeam& team, const NormBackward<T, Stream>& norm) {
  backward(Kind::kLayer, team, norm);
}
template <typename T, typename Stream>
void rms_norm_forward(ThreadTeam& team, const NormForward<T, Stream>& norm) {
  forward(Kind::kRms, team, norm);
}
template <typename T, typename Stream>
void rms_norm_backward(ThreadTeam& team, const NormBackward<T, Stream>& norm) {
  backward(Kind::kRms, team, norm);
}

#define ISTHMUS_INSTANTIATE(T, Stream)                                            \
  template void layer_norm_forward(ThreadTeam&, const NormForward<T, Stream>&);   \
  template void layer_norm_backward(ThreadTeam&, const NormBackward<T, Stream>&); \
  template void rms_norm_forward(ThreadTeam&, const NormForward<T, Stream>&);     \
  template void rms_norm_backward(ThreadTeam&, const NormBackward<T, Stream>&);
ISTHMUS_INSTANTIATE(Bf16, Bf16)
ISTHMUS_INSTANTIATE(Bf16, float)
ISTHMUS_INSTANTIATE(float, float)
ISTHMUS_INSTANTIATE(double, double)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::kernels
