// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation.h"

#include <type_traits>

#include "kernels/activation_math.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {
constexpr std::int64_t kBlockRows = 16;
}  // namespace

template <typename Real>
void swiglu_forward(ThreadTeam& team, const SwiGlu<Real>& s, Real* out) {
  team.for_blocks(s.rows, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const Real* gate = s.gate + r * s.ld_in;
      const Real* up = s.up + r * s.ld_in;
      Real* y = out + r * s.ld_out;
      if constexpr (std::is_same_v<Real, float>) {
        fast_kernels().swiglu_span(s.columns, gate, up, y);
      } else {
        for (std::int64_t j = 0; j < s.columns; ++j) y[j] = gate[j] * sigmoid(gate[j]) * up[j];
      }
    }
  });
}

template <typename Real>
void swiglu_backward(ThreadTeam& team, const SwiGlu<Real>& s, const Real* d_out, Real* d_gate,
                     Real* d_up) {
  team.for_blocks(s.rows, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t in = r * s.ld_in;
      const Real* d = d_out + r * s.ld_out;
      if constexpr (std::is_same_v<Real, float>) {
        fast_kernels().swiglu_gradient_span(s.columns, s.gate + in, s.up + in, d, d_gate + in,
                                            d_up + in);
      } else {
        for (std::int64_t j = 0; j < s.columns; ++j) {
          const Real gate = s.gate[in + j];
          const Real up = s.up[in + j];
          const Real sigma = sigmoid(gate);
          d_up[in + j] = d[j] * gate * sigma;
          d_gate[in + j] = d[j] * up * sigma * (Real{1} + gate * (Real{1} - sigma));
        }
      }
    }
  });
}

template void swiglu_forward(ThreadTeam&, const SwiGlu<float>&, float*);
template void swiglu_forward(ThreadTeam&, const SwiGlu<double>&, double*);
template void swiglu_backward(ThreadTeam&, const SwiGlu<float>&, const float*, float*, float*);
template void swiglu_backward(ThreadTeam&, const SwiGlu<double>&, const double*, double*, double*);

}  // namespace isthmus::kernels
