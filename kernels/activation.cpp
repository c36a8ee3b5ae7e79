// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation.h"

#include <algorithm>
#include <array>
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

namespace {
template <typename Real>
Real activate(Activation act, Real x) {
  switch (act) {
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kGeluTanh:
      return gelu(x);
    case Activation::kGelu:
      break;
  }
  return gelu_erf(x);
}

template <typename Real>
Real activation_slope(Activation act, Real x) {
  switch (act) {
    case Activation::kSilu: {
      const Real sigma = sigmoid(x);
      return sigma * (Real{1} + x * (Real{1} - sigma));
    }
    case Activation::kGeluTanh:
      return gelu_derivative(x);
    case Activation::kGelu:
      break;
  }
  return gelu_erf_derivative(x);
}
}  // namespace

template <typename T>
void activation_forward(ThreadTeam& team, Activation act, const SwiGlu<T>& s, T* out) {
  using Real = RealOf<T>;
  if (act == Activation::kSilu && s.up != nullptr) {
    swiglu_forward(team, s, out);
    return;
  }
  team.for_blocks(s.rows, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t in = r * s.ld_in;
      for (std::int64_t j = 0; j < s.columns; ++j) {
        const Real y = activate(act, Real(s.gate[in + j]));
        out[r * s.ld_out + j] = T(s.up == nullptr ? y : y * Real(s.up[in + j]));
      }
    }
  });
}

template <typename T>
void activation_backward(ThreadTeam& team, Activation act, const SwiGlu<T>& s, const T* d_out,
                         T* d_gate, T* d_up) {
  using Real = RealOf<T>;
  if (act == Activation::kSilu && s.up != nullptr) {
    swiglu_backward(team, s, d_out, d_gate, d_up);
    return;
  }
  team.for_blocks(s.rows, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t in = r * s.ld_in;
      for (std::int64_t j = 0; j < s.columns; ++j) {
        const Real gate = Real(s.gate[in + j]);
        Real d = Real(d_out[r * s.ld_out + j]);
        if (s.up != nullptr) {
          const Real up = Real(s.up[in + j]);
          d_up[in + j] = T(d * activate(act, gate));
          d *= up;
        }
        d_gate[in + j] = T(d * activation_slope(act, gate));
      }
    }
  });
}

template <typename T>
void add_column_sums(ThreadTeam& team, std::int64_t rows, std::int64_t columns, const T* x,
                     std::int64_t ld, RealOf<T>* sums) {
  using Real = RealOf<T>;
  constexpr std::int64_t kColumnsAtOnce = 64;
  constexpr std::int64_t kRowsAtOnce = 64;
  team.for_blocks(columns, kColumnsAtOnce, [=](std::int64_t begin, std::int64_t end) {
    std::array<Real, kColumnsAtOnce> part{};
    for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
      part.fill(Real{0});
      for (std::int64_t r = first; r < std::min(rows, first + kRowsAtOnce); ++r) {
        for (std::int64_t j = begin; j < end; ++j) {
          part[static_cast<std::size_t>(j - begin)] += Real(x[r * ld + j]);
        }
      }
      for (std::int64_t j = begin; j < end; ++j)
        sums[j] += part[static_cast<std::size_t>(j - begin)];
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
#define ISTHMUS_INSTANTIATE(T)                                                                    \
  template void activation_forward(ThreadTeam&, Activation, const SwiGlu<T>&, T*);                \
  template void activation_backward(ThreadTeam&, Activation, const SwiGlu<T>&, const T*, T*, T*); \
  template void add_column_sums(ThreadTeam&, std::int64_t, std::int64_t, const T*, std::int64_t,  \
                                RealOf<T>*);
ISTHMUS_INSTANTIATE(Bf16)
ISTHMUS_INSTANTIATE(float)
ISTHMUS_INSTANTIATE(double)
#undef ISTHMUS_INSTANTIATE
template void gelu_values(ThreadTeam&, std::int64_t, const float*, float*, float*);
template void gelu_values(ThreadTeam&, std::int64_t, const double*, double*, double*);

}  // namespace isthmus::kernels
