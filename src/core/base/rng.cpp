// SPDX-License-Identifier: Apache-2.0
#include "core/base/rng.h"

#include <Random123/philox.h>

#include <cmath>
#include <numbers>

namespace isthmus {
namespace {

__extension__ using Wide = unsigned __int128;

std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}

}  // namespace

std::array<std::uint32_t, 4> Rng::words(std::uint64_t index, std::uint32_t sub) const {
  const r123::Philox4x32::ctr_type counter = {{static_cast<std::uint32_t>(index),
                                               static_cast<std::uint32_t>(index >> 32), sub,
                                               static_cast<std::uint32_t>(stream_)}};
  const r123::Philox4x32::key_type key = {
      {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)}};
  const auto out = r123::Philox4x32{}(counter, key);
  return {out[0], out[1], out[2], out[3]};
}

double Rng::uniform(std::uint64_t index, std::uint32_t sub) const {
  const auto w = words(index, sub);
  return static_cast<double>(join(w[0], w[1]) >> 11) * 0x1p-53;
}

std::uint64_t Rng::below(std::uint64_t bound, std::uint64_t index, std::uint32_t sub) const {
  const auto w = words(index, sub);
  const auto wide = static_cast<Wide>(join(w[0], w[1])) * bound;
  return static_cast<std::uint64_t>(wide >> 64);
}

double Rng::normal(std::uint64_t index, std::uint32_t sub) const {
  const auto w = words(index, sub);
  const double u = (static_cast<double>(join(w[0], w[1]) >> 11) + 1.0) * 0x1p-53;  // (0, 1]
  const double v = static_cast<double>(join(w[2], w[3]) >> 11) * 0x1p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace isthmus
