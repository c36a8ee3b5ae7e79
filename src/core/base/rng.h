// SPDX-License-Identifier: Apache-2.0
// Random numbers from a counter: Philox4x32-10 (Salmon et al. 2011, via Random123) keyed by
// (seed, stream), indexed by data (sample, canonical element, step), never by call order. So a
// value does not depend on threads, mesh or history. Value type; safe everywhere.
#pragma once

#include <array>
#include <cstdint>

namespace isthmus {

/// Purpose of the numbers; streams of one seed are independent. The values are part of the file
/// formats (a resumed run must draw the same numbers): append only.
enum class Stream : std::uint32_t {
  kInit = 1,        // initial weights: index = canonical element
  kShuffle = 2,     // data order
  kSynth = 3,       // synthetic sources
  kSim = 4,         // jitter of links, faults
  kSample = 5,      // text sampling
  kStepTime = 6,    // jitter of simulated inner steps
  kRounding = 7,    // stochastic rounding of codecs: index = tile, sub = worker and value
  kRandomK = 8,     // indices of randk
  kSpsa = 9,        // key of spsa's directions
  kTestData = 100,  // tests and benchmarks
};

class Rng {
 public:
  constexpr Rng(std::uint64_t seed, Stream stream) : seed_(seed), stream_(stream) {}

  /// Four independent words for (index, sub).
  [[nodiscard]] std::array<std::uint32_t, 4> words(std::uint64_t index,
                                                   std::uint32_t sub = 0) const;
  /// Uniform in [0, 1) with 53 bits.
  [[nodiscard]] double uniform(std::uint64_t index, std::uint32_t sub = 0) const;
  /// Uniform integer in [0, bound), bound >= 1, without modulo bias beyond 2^-64.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound, std::uint64_t index,
                                    std::uint32_t sub = 0) const;
  /// Standard normal (Box-Muller in double).
  [[nodiscard]] double normal(std::uint64_t index, std::uint32_t sub = 0) const;

 private:
  std::uint64_t seed_;
  Stream stream_;
};

}  // namespace isthmus
