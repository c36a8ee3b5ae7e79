// SPDX-License-Identifier: Apache-2.0
// Lossless compression of fp32 vectors, for the transfer of state: byte planes, each through zstd.
// Exponents compress, mantissas mostly do not: a model in fp32 gains little, one whose values came
// from bf16 halves twice over. Layout: docs/internals/codecs.md. Stateless; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/expected.h"

namespace isthmus {

/// `level` as zstd has it: 1 fastest, 3 its default, 19 smallest.
[[nodiscard]] std::vector<std::byte> compress_floats(std::span<const float> values, int level = 1);

/// The number of values the bytes claim to hold; check it before memory is taken. RETURNS:
/// DecodeError when the bytes are none of ours.
[[nodiscard]] Expected<std::size_t, DecodeError> compressed_values(
    std::span<const std::byte> bytes);

/// Bit for bit what was compressed. RETURNS: DecodeError when the bytes are damaged or hold another
/// number of values than `out`; `out` is then unspecified. Takes memory for one chunk only.
[[nodiscard]] Expected<void, DecodeError> decompress_floats(std::span<const std::byte> bytes,
                                                            std::span<float> out);

}  // namespace isthmus
