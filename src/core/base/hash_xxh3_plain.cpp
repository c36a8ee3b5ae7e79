// SPDX-License-Identifier: Apache-2.0
// For processors of other kinds, and for builds of xxHash that choose no loop at run time.
#include "core/base/hash_xxh3.h"

namespace isthmus::detail {

XXH128_hash_t xxh3_whole(std::span<const std::byte> bytes) {
  return XXH3_128bits(bytes.data(), bytes.size());
}

void xxh3_add(XXH3_state_t& state, std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state, bytes.data(), bytes.size());
}

}  // namespace isthmus::detail
