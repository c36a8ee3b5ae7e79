// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/stochastic.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/base/rng.h"

namespace isthmus {
namespace {

// Ascending; of the two zeros only the one with code 0.
template <typename G>
std::vector<StochasticLevel> levels_of() {
  std::vector<StochasticLevel> levels;
  for (unsigned code = 0; code < 1u << G::kBits; ++code) {
    if (!G::valid(code)) continue;
    if (G::value(code) == 0 && code != 0 && G::value(0) == 0) continue;
    levels.push_back({G::value(code), code});
  }
  std::ranges::sort(levels, {}, &StochasticLevel::value);
  return levels;
}

}  // namespace

std::vector<StochasticLevel> stochastic_levels(Grid grid) {
  return visit_grid(grid, []<typename G>(G) { return levels_of<G>(); });
}

void encode_stochastically(Grid grid, std::span<const float> x, std::size_t block,
                           std::span<const float> scales, const EncodeKey& key,
                           std::span<std::byte> codes) {
  ISTHMUS_CHECK(key.worker < 1u << (32 - kStochasticValueBits), key.worker);
  const Rng rng(key.seed, Stream::kRounding);
  std::ranges::fill(codes, std::byte{0});
  visit_grid(grid, [&]<typename G>(G) {
    static const std::vector<StochasticLevel> kLevels = levels_of<G>();
    std::array<std::uint32_t, kStochasticDraws> words{};
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i % kStochasticDraws == 0) {
        words = rng.words(key.tile, key.worker << kStochasticValueBits |
                                        static_cast<std::uint32_t>(i / kStochasticDraws));
      }
      const float uniform = uniform_of(words[i % kStochasticDraws]);
      const std::size_t b = i / block;
      const float q = G::kInput == GridInput::kOffset
                          ? stochastic_offset(x[i], scales[2 * b], scales[2 * b + 1])
                          : stochastic_quotient(x[i], scales[b]);
      const unsigned code = round_randomly(kLevels.data(), kLevels.size(), q, uniform);
      const std::size_t bit = i * G::kBits;
      codes[bit / 8] |= static_cast<std::byte>(code << bit % 8);
    }
  });
}

}  // namespace isthmus
