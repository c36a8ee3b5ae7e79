// SPDX-License-Identifier: Apache-2.0
// Bytes that a test draws.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/rng.h"

namespace isthmus {

inline std::vector<std::byte> random_bytes(std::uint64_t seed, std::size_t count) {
  const Rng rng(seed, Stream::kTestData);
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; i += 16) {
    const auto words = rng.words(i);
    std::memcpy(bytes.data() + i, words.data(), std::min<std::size_t>(16, count - i));
  }
  return bytes;
}

}  // namespace isthmus
