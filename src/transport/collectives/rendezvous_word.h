// SPDX-License-Identifier: Apache-2.0
// The word at which ranks with shared memory meet: generation | ended | ranks inside. One word says
// both whether all ranks are inside and whether the group has ended, so either all ranks continue
// or none.
#pragma once

#include <atomic>
#include <cstdint>

namespace isthmus::rendezvous {

inline constexpr std::uint32_t kInsideMask = 0x7ff;  // low 11 bits
inline constexpr std::uint32_t kEnded = 0x800;
inline constexpr std::uint32_t kGeneration = 0x1000;
inline constexpr std::uint32_t kGenerationMask = ~(kGeneration - 1);

/// Polls of the word before the first sleep: the others usually arrive within a few microseconds.
inline constexpr int kLooks = 300;

/// Counts one more rank in, unless the group has ended. RETURNS: the previous word.
inline std::uint32_t count_in(std::atomic<std::uint32_t>& word, int size) {
  std::uint32_t old = word.load(std::memory_order_relaxed);
  std::uint32_t next = 0;
  do {
    if ((old & kEnded) != 0) return old;
    const bool last = static_cast<int>(old & kInsideMask) + 1 == size;
    next = last ? (old & kGenerationMask) + kGeneration : old + 1;
  } while (!word.compare_exchange_weak(old, next, std::memory_order_seq_cst));
  return old;
}

[[nodiscard]] inline bool is_last(std::uint32_t before, int size) {
  return static_cast<int>(before & kInsideMask) + 1 == size;
}

}  // namespace isthmus::rendezvous
