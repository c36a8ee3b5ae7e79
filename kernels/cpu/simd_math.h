// SPDX-License-Identifier: Apache-2.0
// exp, sigmoid and GELU on vectors. Include after one of simd_*.h.
// Errors (tests/kernels/activation_test.cpp): exp within 2 units in the last place.
#pragma once

#include "kernels/activation_math.h"

namespace isthmus::kernels {
namespace {

/// exp(x); 0 below -104, infinity above 88.8.
inline Simd::V exp(Simd::V x) {
  // x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) by the polynomial of Cephes' expf.
  x = Simd::min(Simd::max(x, Simd::set(-104.0f)), Simd::set(88.8f));
  const Simd::V n = Simd::round(Simd::mul(x, Simd::set(1.44269504f)));
  // ln 2 in two parts, the first short enough that n times it is exact.
  Simd::V r = Simd::fnma(n, Simd::set(0.693359375f), x);
  r = Simd::fnma(n, Simd::set(-2.12194440e-4f), r);
  Simd::V p = Simd::set(1.9875691500e-4f);
  p = Simd::fma(p, r, Simd::set(1.3981999507e-3f));
  p = Simd::fma(p, r, Simd::set(8.3334519073e-3f));
  p = Simd::fma(p, r, Simd::set(4.1665795894e-2f));
  p = Simd::fma(p, r, Simd::set(1.6666665459e-1f));
  p = Simd::fma(p, r, Simd::set(5.0000001201e-1f));
  p = Simd::fma(Simd::mul(r, r), p, r);
  return Simd::scale2(Simd::add(p, Simd::set(1.0f)), n);
}

/// exp(-x), bounded so that 1 + it has a reciprocal that is not zero.
inline Simd::V bounded_exp_of_minus(Simd::V x) {
  return exp(Simd::min(Simd::sub(Simd::zero(), x), Simd::set(80.0f)));
}

/// 1 / (1 + exp(-x)), at least 1e-35.
inline Simd::V sigmoid(Simd::V x) {
  return Simd::reciprocal(Simd::add(Simd::set(1.0f), bounded_exp_of_minus(x)));
}

/// tanh(x) by the rational function of Eigen's ptanh: within 3 units in the last place, and with
/// its relative accuracy near 0, where soft caps work.
inline Simd::V tanh(Simd::V x) {
  x = Simd::min(Simd::max(x, Simd::set(-7.90531110763549805f)), Simd::set(7.90531110763549805f));
  const Simd::V square = Simd::mul(x, x);
  Simd::V p = Simd::set(-2.76076847742355e-16f);
  p = Simd::fma(p, square, Simd::set(2.00018790482477e-13f));
  p = Simd::fma(p, square, Simd::set(-8.60467152213735e-11f));
  p = Simd::fma(p, square, Simd::set(5.12229709037114e-08f));
  p = Simd::fma(p, square, Simd::set(1.48572235717979e-05f));
  p = Simd::fma(p, square, Simd::set(6.37261928875436e-04f));
  p = Simd::fma(p, square, Simd::set(4.89352455891786e-03f));
  Simd::V q = Simd::set(1.19825839466702e-06f);
  q = Simd::fma(q, square, Simd::set(1.18534705686654e-04f));
  q = Simd::fma(q, square, Simd::set(2.26843463243900e-03f));
  q = Simd::fma(q, square, Simd::set(4.89352518554385e-03f));
  return Simd::mul(Simd::mul(x, p), Simd::reciprocal(q));
}

/// GELU of x by its tanh formula, and its derivative.
struct GeluPair {
  Simd::V value, slope;
};

/// (1 + tanh u) / 2 = g = 1 / (1 + e), e = exp(-2 u), which keeps its relative accuracy where tanh
/// is near -1. The derivative is g + x g (1 - g) d(2 u)/dx with 1 - g = e g, which does not cancel.
/// Where 2 u is below -64 (x below -8.873, g below 1.6e-28) both are zero: a gradient times a
/// smaller slope is a subnormal number, on which a processor spends a hundred cycles and more, here
/// in a whole product.
inline GeluPair gelu_pair(Simd::V x) {
  const Simd::V slope = Simd::set(static_cast<float>(2 * kGeluSlope));
  const Simd::V cubic = Simd::set(static_cast<float>(2 * kGeluSlope * kGeluCubic));
  const Simd::V cubic_slope = Simd::set(static_cast<float>(6 * kGeluSlope * kGeluCubic));
  const Simd::V square = Simd::mul(x, x);
  const Simd::V twice_u = Simd::mul(x, Simd::fma(cubic, square, slope));
  const Simd::V e = bounded_exp_of_minus(twice_u);
  const Simd::V share = Simd::reciprocal(Simd::add(Simd::set(1.0f), e));
  const Simd::V g = Simd::select(Simd::below(twice_u, Simd::set(-64.0f)), Simd::zero(), share);
  const Simd::V y = Simd::mul(x, g);
  const Simd::V inner = Simd::fma(cubic_slope, square, slope);
  return {y, Simd::fma(Simd::mul(y, Simd::mul(e, g)), inner, g)};
}

}  // namespace
}  // namespace isthmus::kernels
