// SPDX-License-Identifier: Apache-2.0
// Scalar definitions behind spsa.h: Philox4x32-10 (Salmon et al. 2011) and the counter of a
// canonical element. Integers only, so every machine draws the same signs.
#pragma once

#include <array>
#include <cstdint>

namespace isthmus::kernels {

inline constexpr std::uint32_t kPhiloxM0 = 0xD2511F53;
inline constexpr std::uint32_t kPhiloxM1 = 0xCD9E8D57;
inline constexpr std::uint32_t kPhiloxW0 = 0x9E3779B9;
inline constexpr std::uint32_t kPhiloxW1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32_10(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t low = std::uint64_t{kPhiloxM0} * counter[0];
    const std::uint64_t high = std::uint64_t{kPhiloxM1} * counter[2];
    counter = {static_cast<std::uint32_t>(high >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(high),
               static_cast<std::uint32_t>(low >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(low)};
    key = {key[0] + kPhiloxW0, key[1] + kPhiloxW1};
  }
  return counter;
}

/// Names one direction z of a run.
struct SpsaDirection {
  std::uint32_t step = 0;
  std::uint32_t machine = 0;
  std::uint32_t sample = 0;  // < 2^24: it shares a counter word with the element
};

inline constexpr std::int64_t kSpsaWordElements = 32;      // one word of Philox
inline constexpr std::int64_t kSpsaCounterElements = 128;  // one counter

/// Counter of the 128 elements that contain `element`. Different (step, machine, sample, element /
/// 128) give different counters as long as element < 2^47.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> spsa_counter(const SpsaDirection& z,
                                                                  std::int64_t element) {
  return {static_cast<std::uint32_t>(element >> 7),
          (static_cast<std::uint32_t>(element >> 39) & 0xFFU) | z.sample << 8, z.machine, z.step};
}

/// z at one element: +1 or -1. The definition; spsa.cpp draws 2048 at once.
[[nodiscard]] constexpr int spsa_sign(std::uint64_t run_key, const SpsaDirection& z,
                                      std::int64_t element) {
  const std::array<std::uint32_t, 4> words = philox4x32_10(
      spsa_counter(z, element),
      {static_cast<std::uint32_t>(run_key), static_cast<std::uint32_t>(run_key >> 32)});
  const std::uint32_t word = words[static_cast<std::size_t>((element >> 5) & 3)];
  return ((word >> (element & 31)) & 1U) != 0 ? -1 : 1;
}

}  // namespace isthmus::kernels
