// SPDX-License-Identifier: Apache-2.0
// A digest of events and their order: equal traces, equal digests. Not cryptographic.
#pragma once

#include <cstdint>

namespace isthmus {

class TraceHash {
 public:
  constexpr void add(std::uint64_t word) {
    // One round of SplitMix64's finalizer per word, chained.
    std::uint64_t z = (value_ ^ word) + 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    value_ = z ^ (z >> 31);
  }
  [[nodiscard]] constexpr std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace isthmus
