// SPDX-License-Identifier: Apache-2.0
// Token files of other programs, detected by their bytes:
//   llm.c      256 little-endian int32 (20240520, version 1, count), then u16; or (20240801,
//              version 7, count), then u32
//   Megatron   NAME.bin beside NAME.idx, which begins "MMIDIDX\0\0"
//   NumPy      .npy of integers (data/npy_file.h)
//   raw        integers of the width given by the source, no header
//   nanoGPT    raw u16: a file of no other known format
// Every field is checked against the file's size; nothing is trusted. A header takes precedence
// over the source's width if both have the same size, and is an error if not; a given width
// overrides every guess.
#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/data_file.h"
#include "core/base/storage.h"
#include "data/compressed_text.h"
#include "data/token_span.h"

namespace isthmus {

/// Rules for files without a header. A run that the first versions began continues by their rules:
/// no inflation of texts, no given widths, no .npy, and no refusals.
enum class ReadingRules { kOfToday, kOfFirst };

struct TokenFile {
  std::filesystem::path path;
  std::string format;  // "text", "llm.c", "nanoGPT", "Megatron", "NumPy", "u8", "u32", ...
  MappedFile file;
  TokenSpan tokens;                 // points into `file`, or `inflated`
  std::vector<std::byte> inflated;  // the text of a compressed file
  /// True if read by the rules of the first versions, where today's rules differ.
  bool as_it_lies = false;
  /// The id after each document, if the file or its record gives it.
  std::optional<std::int32_t> document_end = {};
};

/// One clause on how the bytes are read: equal for equal ids of equal bytes.
[[nodiscard]] std::string reading_of(const TokenFile& file);
/// The rules of a run that began with these files.
[[nodiscard]] ReadingRules rules_of(std::span<const DataFile> begun_with);

/// A text: its tokens are its bytes, after inflation of gzip or zstd data. THROWS: SystemError when
/// the file is unreadable, damaged, of another format, or larger than `most_inflated` bytes once
/// inflated.
[[nodiscard]] TokenFile open_text_file(const Storage& storage, const std::filesystem::path& path,
                                       ReadingRules rules = ReadingRules::kOfToday,
                                       std::int64_t most_inflated = kMostInflatedBytes);
/// width: from the source, if given. THROWS: SystemError naming the file and the inconsistency, or
/// the format it appears to have.
[[nodiscard]] TokenFile open_token_file(const Storage& storage, const std::filesystem::path& path,
                                        std::optional<TokenType> width = std::nullopt,
                                        ReadingRules rules = ReadingRules::kOfToday);

/// Finds the tokens in the bytes of a file without an index file. Fuzzed. RETURNS: the format's
/// name. THROWS: SystemError.
std::string locate_tokens(std::span<const std::byte> bytes, const std::string& label,
                          TokenSpan& tokens, std::optional<TokenType> width = std::nullopt);
/// The same for Megatron's pair. Fuzzed. THROWS: SystemError.
[[nodiscard]] TokenSpan locate_megatron_tokens(std::span<const std::byte> bin,
                                               std::span<const std::byte> index,
                                               const std::string& bin_label,
                                               const std::string& index_label);

/// Largest number of tokens of an llm.c file: its header counts them with an int32.
inline constexpr std::int64_t kMostLlmcTokens = std::numeric_limits<std::int32_t>::max();

/// Writes an llm.c token file (u16), atomically. THROWS: ConfigError above kMostLlmcTokens.
void write_llmc_tokens(Storage& storage, const std::filesystem::path& path,
                       std::span<const std::uint16_t> tokens);

}  // namespace isthmus
