// SPDX-License-Identifier: Apache-2.0
// What a file that was named as data is instead: formats told by their signature, and guesses about
// bytes that have none. Token sources and texts ask before they take bytes as they are, because
// bytes of another format would train without a word. Pure functions; any thread.
//
// A guess is a test of significance. Its null hypothesis is a sound u16 token file, whose order
// does not depend on whether a position is even, and whose ids were numbered without regard to
// their low byte. All guesses about one file together refuse a file of that hypothesis with a
// chance below 1e-9.
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

/// gzip or zstd by its whole header.
[[nodiscard]] Compression compression_of(std::span<const std::byte> bytes);

/// Formats with a signature that are no tokens: archives, tables, pickles, pointers, images,
/// models.
[[nodiscard]] std::optional<ForeignFormat> signed_format(std::span<const std::byte> bytes);

/// UTF-16 and UTF-32, by a byte-order mark with characters after it, or by zero bytes at every
/// second position.
[[nodiscard]] std::optional<ForeignFormat> wide_text(std::span<const std::byte> bytes);

/// What bytes without a header are, where it is not u16 tokens: text, wider integers, big-endian or
/// 8-bit ones. Reads at most 1 MiB, spread over the file.
[[nodiscard]] std::optional<ForeignFormat> not_u16_tokens(std::span<const std::byte> bytes);

}  // namespace isthmus
