// SPDX-License-Identifier: Apache-2.0
// Detects the real format of a file that was given as data: formats with a signature, and guesses
// for bytes without one. Token sources and texts call this before they use bytes as tokens, because
// training on another format would not fail. Pure functions; any thread.
//
// A guess is a test of significance. Its null hypothesis is a valid u16 token file, whose order
// does not depend on the parity of positions, and whose ids were numbered independently of their
// low byte. All tests of one file together reject a file of that hypothesis with a probability
// below 1e-9.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace isthmus {

struct ForeignFormat {
  std::string what;    // "gzip data", as in "it looks like gzip data"
  std::string remedy;  // what to do, as in "; unpack it with gunzip"
};

enum class Compression { kNone, kGzip, kZstd };

/// Detects gzip or zstd by the complete header.
[[nodiscard]] Compression compression_of(std::span<const std::byte> bytes);

/// Formats with a signature that are not tokens: archives, tables, pickles, pointers, images,
/// models.
[[nodiscard]] std::optional<ForeignFormat> signed_format(std::span<const std::byte> bytes);

/// UTF-16 and UTF-32, by a byte-order mark followed by characters, or by zero bytes at every second
/// position.
[[nodiscard]] std::optional<ForeignFormat> wide_text(std::span<const std::byte> bytes);

/// The format of bytes without a header, unless they are u16 tokens: text, wider, big-endian or
/// 8-bit integers. Reads at most 1 MiB, spread over the file.
[[nodiscard]] std::optional<ForeignFormat> not_u16_tokens(std::span<const std::byte> bytes);

}  // namespace isthmus
