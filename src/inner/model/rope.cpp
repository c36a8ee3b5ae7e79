// SPDX-License-Identifier: Apache-2.0
#include "inner/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rotary.h"

namespace isthmus {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

/// Long waves are stretched by the factor, short ones stay, those between are mixed (Llama 3.1).
double llama3(const RopeScaling& scaling, double frequency) {
  const double wavelength = kTwoPi / frequency;
  if (wavelength < scaling.original_positions / scaling.high_freq_factor) return frequency;
  if (wavelength > scaling.original_positions / scaling.low_freq_factor) {
    return frequency / scaling.factor;
  }
  const double smooth = (scaling.original_positions / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

/// Which pair turns `rotations` times over the original positions (YaRN, arXiv:2309.00071, section
/// 3.2).
double yarn_pair(const RopeScaling& scaling, double rotations, double dim, double theta) {
  return dim * std::log(scaling.original_positions / (rotations * kTwoPi)) / (2 * std::log(theta));
}

/// YaRN: pairs that turn often stay, those that turn less than once are stretched, a ramp between.
void yarn(const RopeScaling& scaling, double dim, double theta, std::vector<double>& frequencies) {
  double low = yarn_pair(scaling, scaling.beta_fast, dim, theta);
  double high = yarn_pair(scaling, scaling.beta_slow, dim, theta);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  constexpr double kLeastWidth = 0.001;
  if (low == high) high += kLeastWidth;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / scaling.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

/// The base under "dynamic" for passes of `length` tokens: larger beyond the model's positions.
double dynamic_theta(const RopeScaling& scaling, double theta, double dim, double length,
                     double positions) {
  const double stretch = scaling.factor * std::max(length, positions) / positions;
  return theta * std::pow(stretch - (scaling.factor - 1), dim / (dim - 2));
}

bool has_local_tables(const ModelShape& s) { return s.family.local_rope_theta > 0; }

}  // namespace

std::vector<double> rope_frequencies(const ModelShape& s, bool local) {
  const RopeScaling scaling = local ? RopeScaling{} : s.family.rope;
  const auto dim = static_cast<double>(s.rotary_dim());
  double theta = local ? s.family.local_rope_theta : s.rope_theta;
  if (scaling.type == RopeType::kDynamic) {
    theta = dynamic_theta(scaling, theta, dim, static_cast<double>(s.longest),
                          static_cast<double>(s.positions));
  }
  std::vector<double> frequencies(static_cast<std::size_t>(s.rotary_dim() / 2));
  const auto half = static_cast<double>(frequencies.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -static_cast<double>(i) / half);
    if (scaling.type == RopeType::kLinear) frequencies[i] /= scaling.factor;
    if (scaling.type == RopeType::kLlama3) frequencies[i] = llama3(scaling, frequencies[i]);
  }
  if (scaling.type == RopeType::kYarn) yarn(scaling, dim, theta, frequencies);
  return frequencies;
}

std::int64_t rope_sine_offset(const ModelShape& s) { return s.longest * (s.rotary_dim() / 2); }

std::int64_t rope_table_values(const ModelShape& s) {
  return (has_local_tables(s) ? 4 : 2) * rope_sine_offset(s);
}

std::int64_t rope_cosine_offset(const ModelShape& s, std::int64_t layer) {
  return has_local_tables(s) && s.rule(layer).local ? 2 * rope_sine_offset(s) : 0;
}

template <typename Real>
void fill_rope_tables(const ModelShape& s, Real* tables) {
  const auto fill = [&](bool local, double amplitude, Real* to) {
    kernels::rotary_table<Real>(s.longest, rope_frequencies(s, local), amplitude, to,
                                to + rope_sine_offset(s));
  };
  fill(false, s.family.rope.attention_factor, tables);
  if (has_local_tables(s)) fill(true, 1, tables + 2 * rope_sine_offset(s));
}

template void fill_rope_tables(const ModelShape&, float*);
template void fill_rope_tables(const ModelShape&, double*);

}  // namespace isthmus
