// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation.h"

#include <type_traits>

#include "kernels/activation_math.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {
constexpr std::int64_t kBlockRows = 16;
constexpr std::int64_t kBlockValues = std::int64_t{1} << 14;
}  // namespace

template <typename T>
void swiglu_forward(ThreadTeam& team, const SwiGlu<T>& s, T* out) {
  team.for_blocks(s.rows, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* gate = s.gate + r * s.ld_in;
      const T* up = s.up + r * s.ld_in;
      T* y = out + r * s.ld_out;
      if constexpr (std::is_same_v<RealOf<T>, float>) {
        fast_kernels().on<T>().swiglu_span(s.columns, gate, up, y);
      } else {
        for (std::int64_t j = 0; j < s.columns; ++j) y[j] = gate[j] * sigmoid(gate[j]) * up[j];
      }
    }
  });
}

template <typename T>
void swiglu_backward(ThreadTeam& team, const SwiGlu<T>& s, const T* d_out, T* d_gate, T* d_up) {
  team.for_blocks(s.rows, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t in = r * s.ld_in;
      const T* d = d_out + r * s.ld_out;
      if constexpr (std::is_same_v<RealOf<T>, float>) {
        fast_kernels().on<T>().swiglu_gradient_span(s.columns, s.gate + in, s.up + in, d,
                                                    d_gate + in, d_up + in);
      } else {
        for (std::int64_t j = 0; j < s.columns; ++j) {
          const T gate = s.gate[in + j];
          const T up = s.up[in + j];
          const T sigma = sigmoid(gate);
          d_up[in + j] = d[j] * gate * sigma;
          d_gate[in + j] = d[j] * up * sigma * (T{1} + gate * (T{1} - sigma));
        }
      }
    }
  });
}

template <typename Real>
void gelu_values(ThreadTeam& team, std::int64_t n, const Real* x, Real* value, Real* slope) {
  team.for_blocks(n, kBlockValues, [=](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<Real, float>) {
      fast_kernels().gelu_span(end - begin, x + begin, value + begin,
                               slope == nullptr ? nullptr : slope + begin);
    } else {
      for (std::int64_t i = begin; i < end; ++i) {
        value[i] = gelu(x[i]);
        if (slope != nullptr) slope[i] = gelu_derivative(x[i]);
      }
    }
  });
}

template void swiglu_forward(ThreadTeam&, const SwiGlu<Bf16>&, Bf16*);
template void swiglu_forward(ThreadTeam&, const SwiGlu<float>&, float*);
template void swiglu_forward(ThreadTeam&, const SwiGlu<double>&, double*);
template void swiglu_backward(ThreadTeam&, const SwiGlu<Bf16>&, const Bf16*, Bf16*, Bf16*);
template void swiglu_backward(ThreadTeam&, const SwiGlu<float>&, const float*, float*, float*);
template void swiglu_backward(ThreadTeam&, const SwiGlu<double>&, const double*, double*, double*);
template void gelu_values(ThreadTeam&, std::int64_t, const float*, float*, float*);
template void gelu_values(ThreadTeam&, std::int64_t, const double*, double*, double*);

}  // namespace isthmus::kernels
