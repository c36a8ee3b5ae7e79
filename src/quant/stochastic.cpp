// SPDX-License-Identifier: Apache-2.0
#include "quant/stochastic.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "core/rng.h"

namespace isthmus {
namespace {

struct Level {
  float value;
  unsigned code;
};

// Ascending; of the two zeros only the one with code 0.
template <typename G>
std::vector<Level> levels_of() {
  std::vector<Level> levels;
  for (unsigned code = 0; code < 1u << G::kBits; ++code) {
    if (!G::valid(code)) continue;
    if (G::value(code) == 0 && code != 0 && G::value(0) == 0) continue;
    levels.push_back({G::value(code), code});
  }
  std::ranges::sort(levels, {}, &Level::value);
  return levels;
}

// `uniform` in [0, 1).
unsigned round_randomly(const std::vector<Level>& levels, float q, float uniform) {
  const auto above = std::ranges::upper_bound(levels, q, {}, &Level::value);
  if (above == levels.begin()) return levels.front().code;
  const Level& low = *(above - 1);
  if (above == levels.end()) return low.code;
  const float share = (q - low.value) / (above->value - low.value);
  return uniform < share ? above->code : low.code;
}

float quotient(float x, float scale) { return scale > 0 ? x / scale : 0; }
float offset_quotient(float x, float low, float step) {
  if (!(step > 0)) return 0;
  return static_cast<float>((static_cast<double>(x) - static_cast<double>(low)) /
                            static_cast<double>(step));
}

constexpr unsigned kDraws = 4;       // 32-bit words of one Philox block
constexpr unsigned kValueBits = 10;  // of sub: kTileValues / kDraws

}  // namespace

void encode_stochastically(Grid grid, std::span<const float> x, std::size_t block,
                           std::span<const float> scales, const EncodeKey& key,
                           std::span<std::byte> codes) {
  ISTHMUS_CHECK(key.worker < 1u << (32 - kValueBits), key.worker);
  const Rng rng(key.seed, Stream::kRounding);
  std::ranges::fill(codes, std::byte{0});
  visit_grid(grid, [&]<typename G>(G) {
    static const std::vector<Level> kLevels = levels_of<G>();
    std::array<std::uint32_t, kDraws> words{};
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i % kDraws == 0) {
        words =
            rng.words(key.tile, key.worker << kValueBits | static_cast<std::uint32_t>(i / kDraws));
      }
      const float uniform = static_cast<float>(words[i % kDraws] >> 8) * 0x1p-24f;
      const std::size_t b = i / block;
      const float q = G::kInput == GridInput::kOffset
                          ? offset_quotient(x[i], scales[2 * b], scales[2 * b + 1])
                          : quotient(x[i], scales[b]);
      const unsigned code = round_randomly(kLevels, q, uniform);
      const std::size_t bit = i * G::kBits;
      codes[bit / 8] |= static_cast<std::byte>(code << bit % 8);
    }
  });
}

}  // namespace isthmus
