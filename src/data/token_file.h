// SPDX-License-Identifier: Apache-2.0
// Token files of other programs, recognised by their bytes:
//   llm.c      256 little-endian int32 (20240520, version 1, count), then u16; or (20240801,
//   version
//              7, count), then u32
//   Megatron   NAME.bin beside NAME.idx, which begins "MMIDIDX\0\0"
//   nanoGPT    raw u16, no header: what is none of the others
// Every field is checked against the file's size; nothing is trusted.
#pragma once

#include <filesystem>
#include <limits>
#include <string>

#include "core/base/storage.h"
#include "data/token_span.h"

namespace isthmus {

struct TokenFile {
  std::filesystem::path path;
  std::string format;  // "text", "llm.c", "nanoGPT", "Megatron"
  MappedFile file;
  TokenSpan tokens;  // into `file`
};

/// A text: its bytes are its tokens. THROWS: SystemError when unreadable.
[[nodiscard]] TokenFile open_text_file(const Storage& storage, const std::filesystem::path& path);
/// THROWS: SystemError naming the file and what is inconsistent in it.
[[nodiscard]] TokenFile open_token_file(const Storage& storage, const std::filesystem::path& path);

/// Finds the tokens in the bytes of a file that has no index beside it. Fuzzed.
/// RETURNS: the format's name. THROWS: SystemError.
std::string locate_tokens(std::span<const std::byte> bytes, const std::string& label,
                          TokenSpan& tokens);
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
