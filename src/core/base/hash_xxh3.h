// SPDX-License-Identifier: Apache-2.0
// The two calls of xxHash that pass over bytes, by vectors as wide as the processor has where the
// library chooses at run time (hash_xxh3_wide.cpp), else by those of every processor of its kind
// (hash_xxh3_plain.cpp). CMake picks the file; both give the same digests. Pure.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <span>

namespace isthmus::detail {

/// XXH3-128 of `bytes`.
[[nodiscard]] XXH128_hash_t xxh3_whole(std::span<const std::byte> bytes);
/// `state` goes on over `bytes`.
void xxh3_add(XXH3_state_t& state, std::span<const std::byte> bytes);

}  // namespace isthmus::detail
