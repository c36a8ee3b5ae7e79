// SPDX-License-Identifier: Apache-2.0
// Lossless compression of fp32 vectors, for the transfer of state: byte planes, each compressed by
// zstd. Exponents compress, mantissas mostly do not: an fp32 model shrinks little, one whose values
// came from bf16 to less than half. Layout: docs/internals/codecs.md. Stateless; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/expected.h"

namespace isthmus {

/// `level`: zstd's, 1 fastest, 3 its default, 19 smallest.
[[nodiscard]] std::vector<std::byte> compress_floats(std::span<const float> values, int level = 1);

/// The number of values that the bytes claim to hold; check it before allocating memory. RETURNS:
/// DecodeError when the bytes do not have this format.
[[nodiscard]] Expected<std::size_t, DecodeError> compressed_values(
    std::span<const std::byte> bytes);

/// Restores the compressed values bit for bit. RETURNS: DecodeError when the bytes are damaged or
/// hold another number of values than `out`; `out` is then unspecified. Uses memory for only one
/// chunk.
[[nodiscard]] Expected<void, DecodeError> decompress_floats(std::span<const std::byte> bytes,
                                                            std::span<float> out);

}  // namespace isthmus
