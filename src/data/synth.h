// SPDX-License-Identifier: Apache-2.0
// Synthetic token sources with an exactly known entropy rate, so that a loss can be judged by its
// excess over the best possible one. Spelling: "synth:NAME" or "synth:NAME:key=value,...", keys
// `vocab` (V), `tokens` (N), `seed`, and for zipf `exponent` (s).
//
//   uniform   independent, p(x) = 1/V.                         H = ln V
//   zipf      independent, p(x) = (x+1)^-s / Z, Z = sum r^-s.  H = ln Z + s/Z sum r^-s ln r
//   markovK   order K. The symbols form G groups of 1, 2, 4, ... (the last has the rest). Each
//             token draws a group j, all equally likely, and a rank r with p(r) = 4^-r / Z_j,
//             0 <= r < g_j, and is symbol r of that group rotated by a shift that depends on the K
//             tokens before: x = first_j + (r + shift(context, j)) mod g_j. For every context
//             the distribution is a permutation of the same one, so
//                 H = ln G + 1/G sum_j H_j,   H_j = ln Z_j + ln 4 / Z_j sum_r r 4^-r,
//             exactly. Symbols and contexts are near Zipf-distributed (a symbol of group j has
//             frequency about 1/(G g_j)), so a model keeps learning rarer contexts for long.
// Tokens before the first count as 0. Token t uses draw t of the seed, so the text is a pure
// function of the spelling.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isthmus {

struct SynthSpec {
  enum class Kind { kUniform, kZipf, kMarkov };
  Kind kind = Kind::kUniform;
  int order = 0;  // K of markovK
  std::int64_t vocab = 32;
  std::int64_t tokens = std::int64_t{1} << 22;
  std::uint64_t seed = 0;
  double exponent = 1;
};

/// `spelling` with or without "synth:". THROWS: ConfigError naming the spelling, the defect and the
/// available sources.
[[nodiscard]] SynthSpec parse_synth(std::string_view spelling);

/// Entropy of the next token given all before, in nats.
[[nodiscard]] double entropy_rate_nats(const SynthSpec& spec);

/// p(next = x | context) for every x; context: at least `order` previous tokens, the latest last.
[[nodiscard]] std::vector<double> synth_distribution(const SynthSpec& spec,
                                                     std::span<const std::uint16_t> context);

/// The first spec.tokens tokens.
[[nodiscard]] std::vector<std::uint16_t> generate(const SynthSpec& spec);

}  // namespace isthmus
