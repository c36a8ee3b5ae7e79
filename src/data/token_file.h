// SPDX-License-Identifier: Apache-2.0
// Token files of other programs, recognised by their bytes:
//   llm.c      256 little-endian int32 (20240520, version 1, count), then u16; or (20240801,
//              version 7, count), then u32
//   Megatron   NAME.bin beside NAME.idx, which begins "MMIDIDX\0\0"
//   NumPy      .npy of integers (data/npy_file.h)
//   raw        integers of the width that the source says, no header
//   nanoGPT    raw u16: what is none of the others, and looks like nothing else
// Every field is checked against the file's size; nothing is trusted. A header wins over the width
// that a source says where they are of one size, and is refused where not; a width that is said
// overrules every guess.
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

/// Files without a header are read by the rules of today. A run that the first versions began goes
/// on as it did: those inflated no text, knew no width and no .npy, and refused nothing.
enum class ReadingRules { kOfToday, kOfFirst };

struct TokenFile {
  std::filesystem::path path;
  std::string format;  // "text", "llm.c", "nanoGPT", "Megatron", "NumPy", "u8", "u32", ...
  MappedFile file;
  TokenSpan tokens;                 // into `file`, or `inflated`
  std::vector<std::byte> inflated;  // of a compressed text
  /// By rules of the first versions, where those of today would read or refuse it otherwise.
  bool as_it_lies = false;
  /// Of packed conversations (data/packed_rows.h): beside each token what it is.
  std::vector<std::uint8_t> marks = {};
  /// The id behind each document, where the file or its maker says it.
  std::optional<std::int32_t> document_end = {};
};

/// One clause on how its bytes are read: equal for equal ids of equal bytes.
[[nodiscard]] std::string reading_of(const TokenFile& file);
/// The rules of a run that began with these files.
[[nodiscard]] ReadingRules rules_of(std::span<const DataFile> begun_with);

/// A text: its bytes are its tokens, those of gzip or zstd data inflated. THROWS: SystemError when
/// unreadable, damaged, of another format, or larger than `most_inflated` bytes once inflated.
[[nodiscard]] TokenFile open_text_file(const Storage& storage, const std::filesystem::path& path,
                                       ReadingRules rules = ReadingRules::kOfToday,
                                       std::int64_t most_inflated = kMostInflatedBytes);
/// width: what the source says, if anything. THROWS: SystemError naming the file and what is
/// inconsistent in it, or what it looks like.
[[nodiscard]] TokenFile open_token_file(const Storage& storage, const std::filesystem::path& path,
                                        std::optional<TokenType> width = std::nullopt,
                                        ReadingRules rules = ReadingRules::kOfToday);

/// Finds the tokens in the bytes of a file that has no index beside it. Fuzzed.
/// RETURNS: the format's name. THROWS: SystemError.
std::string locate_tokens(std::span<const std::byte> bytes, const std::string& label,
                          TokenSpan& tokens, std::optional<TokenType> width = std::nullopt);
/// The same for Megatron's pair. Fuzzed. THROWS: SystemError.
[[nodiscard]] TokenSpan locate_megatron_tokens(std::span<const std::byte> bin,
                                               std::span<const std::byte> index,
                                               const std::string& bin_label,
                                               const std::string& index_label);

/// Most tokens of an llm.c file: its header counts them with an int32.
inline constexpr std::int64_t kMostLlmcTokens = std::numeric_limits<std::int32_t>::max();

/// Writes an llm.c token file (u16), atomically. THROWS: ConfigError above kMostLlmcTokens.
void write_llmc_tokens(Storage& storage, const std::filesystem::path& path,
                       std::span<const std::uint16_t> tokens);

}  // namespace isthmus
