// SPDX-License-Identifier: Apache-2.0
// Scalar formulas of the activations, shared by references, epilogues and tests.
#pragma once

#include <cmath>

namespace isthmus::kernels {

inline constexpr double kGeluSlope = 0.79788456080286535588;  // sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

template <typename Real>
Real gelu(Real x) {
  const Real inner =
      static_cast<Real>(kGeluSlope) * (x + static_cast<Real>(kGeluCubic) * x * x * x);
  return static_cast<Real>(0.5) * x * (Real{1} + std::tanh(inner));
}

template <typename Real>
Real gelu_derivative(Real x) {
  const Real slope = static_cast<Real>(kGeluSlope);
  const Real cubic = static_cast<Real>(kGeluCubic);
  const Real half = static_cast<Real>(0.5);
  const Real t = std::tanh(slope * (x + cubic * x * x * x));
  const Real inner_derivative = slope * (Real{1} + Real{3} * cubic * x * x);
  return half * (Real{1} + t) + half * x * (Real{1} - t * t) * inner_derivative;
}

/// x * Phi(x), Phi the distribution function of the normal distribution.
template <typename Real>
Real gelu_erf(Real x) {
  return static_cast<Real>(0.5) * x *
         (Real{1} + std::erf(x * static_cast<Real>(0.70710678118654752440)));
}

template <typename Real>
Real gelu_erf_derivative(Real x) {
  const Real cumulative =
      static_cast<Real>(0.5) * (Real{1} + std::erf(x * static_cast<Real>(0.70710678118654752440)));
  const Real density =
      static_cast<Real>(0.39894228040143267794) * std::exp(static_cast<Real>(-0.5) * x * x);
  return cumulative + x * density;
}

template <typename Real>
Real sigmoid(Real x) {
  return Real{1} / (Real{1} + std::exp(-x));
}

}  // namespace isthmus::kernels
