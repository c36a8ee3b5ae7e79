// SPDX-License-Identifier: Apache-2.0
#include "data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "data/compressed_text.h"
#include "data/documents.h"
#include "data/file_format.h"
#include "data/npy_file.h"
#include "data/packed_rows.h"
#include "data/tokenized_text.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::size_t kHeaderInts = 256;
constexpr std::size_t kHeaderBytes = kHeaderInts * sizeof(std::int32_t);
constexpr std::int32_t kGpt2Magic = 20240520;
constexpr std::int32_t kLlama3Magic = 20240801;
constexpr std::int32_t kEvalMagic = 20240522;
constexpr std::int32_t kModelMagic = 20240326;

constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
constexpr std::size_t kIndexHeaderBytes = 9 + 8 + 1 + 8 + 8;

[[noreturn]] void bad(const std::string& label, const std::string& defect) {
  throw SystemError(label + ": not a usable token file: " + defect);
}

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t at) {
  ISTHMUS_CHECK(at + sizeof(T) <= bytes.size(), at, bytes.size());
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

TokenSpan llmc_tokens(std::span<const std::byte> bytes, const std::string& label, TokenType type,
                      std::int32_t version) {
  if (bytes.size() < kHeaderBytes) {
    bad(label,
        fmt::format("its llm.c header has {} of {} bytes (truncated)", bytes.size(), kHeaderBytes));
  }
  if (load<std::int32_t>(bytes, 4) != version) {
    bad(label,
        fmt::format("llm.c version {}; {} is needed", load<std::int32_t>(bytes, 4), version));
  }
  const std::int64_t count = load<std::int32_t>(bytes, 8);
  const std::size_t room = bytes.size() - kHeaderBytes;
  if (count < 0 || static_cast<std::size_t>(count) * token_bytes(type) != room) {
    bad(label, fmt::format("its llm.c header counts {} tokens of {} bytes, but {} bytes follow "
                           "(truncated or padded file?)",
                           count, token_bytes(type), room));
  }
  return {bytes.data() + kHeaderBytes, type, count};
}

TokenType megatron_type(std::uint8_t code, const std::string& label) {
  switch (code) {
    case 1:
      return TokenType::kU8;
    case 4:
      return TokenType::kI32;
    case 5:
      return TokenType::kI64;
    case 8:
      return TokenType::kU16;
    default:
      bad(label,
          fmt::format("token type code {}; 1 (u8), 4 (i32), 5 (i64) and 8 (u16) are known", code));
  }
}

/// Checks a width of the source against the header's.
void check_width(TokenType type, std::optional<TokenType> width, const std::string& label,
                 const char* where) {
  if (!width || token_bytes(*width) == token_bytes(type)) return;
  bad(label, fmt::format("the source says {}, its {} says {}; leave the width out",
                         token_type_name(*width), where, token_type_name(type)));
}

TokenSpan raw_tokens(std::span<const std::byte> bytes, const std::string& label, TokenType type) {
  const std::size_t width = token_bytes(type);
  if (bytes.size() % width != 0) {
    bad(label, fmt::format("the source says {}, and its {} bytes are no whole number of them",
                           token_type_name(type), bytes.size()));
  }
  return {bytes.data(), type, static_cast<std::int64_t>(bytes.size() / width)};
}

/// Megatron calls its files NAME_text_document.bin, or _text_sentence.bin; only the index has the
/// width.
void refuse_lone_megatron(const std::filesystem::path& bin, const std::filesystem::path& index) {
  const std::string stem = bin.stem().string();
  if (bin.extension() != ".bin" ||
      !(stem.ends_with("_text_document") || stem.ends_with("_text_sentence"))) {
    return;
  }
  bad(bin.string(),
      fmt::format("it is named as Megatron's files are, whose width only their index says, and {} "
                  "is not there; put it beside it, or say the width, tokens:FILE:u16 or "
                  "tokens:FILE:i32",
                  index.filename().string()));
}

/// The kind of a file that is no text, by its uncompressed bytes.
std::optional<ForeignFormat> foreign_text(std::span<const std::byte> bytes) {
  if (is_npy(bytes)) return ForeignFormat{"a .npy file", "name it with tokens:"};
  std::optional<ForeignFormat> format = signed_format(bytes);
  return format ? format : wide_text(bytes);
}

void warn_of_first_rules(const std::string& label, const std::string& cause) {
  log_warning(
      "{}: {}; the run that goes on was begun by a version that took its bytes as they are, and "
      "goes on so; a new run reads or refuses them otherwise",
      label, cause);
}

std::int32_t first_integer(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 ? load<std::int32_t>(bytes, 0) : 0;
}

/// True for bytes that the first versions took for u16 tokens.
bool has_no_header_of_first(std::span<const std::byte> bytes) {
  const std::int32_t magic = first_integer(bytes);
  return magic != kGpt2Magic && magic != kLlama3Magic && magic != kEvalMagic &&
         magic != kModelMagic &&
         as_text(bytes.first(std::min(bytes.size(), kIndexMagic.size()))) != kIndexMagic;
}

/// Reads a file without a header as u16, or as the u8 or u16 that the source says.
void read_as_first(TokenFile& result, const std::string& label, std::optional<TokenType> width) {
  if (width && *width != TokenType::kU8 && *width != TokenType::kU16) {
    throw ConfigError(fmt::format(
        "data.source says {} of {}, and the run that goes on was begun by a version that knew no "
        "widths and read 16-bit tokens: leave the width out to go on with those, or start a new "
        "run from its model with model.init",
        token_type_name(*width), label));
  }
  const std::span<const std::byte> bytes = result.file.bytes();
  result.tokens = raw_tokens(bytes, label, width.value_or(TokenType::kU16));
  result.format = width ? std::string(token_type_name(*width)) : "nanoGPT";
  if (width) return;
  TokenSpan today;
  try {
    if (locate_tokens(bytes, label, today) == "nanoGPT") return;
    result.as_it_lies = true;
    warn_of_first_rules(label, "it is a .npy file");
  } catch (const SystemError& error) {
    result.as_it_lies = true;
    warn_of_first_rules(label, error.what());
  }
}

}  // namespace

std::string locate_tokens(std::span<const std::byte> bytes, const std::string& label,
                          TokenSpan& tokens, std::optional<TokenType> width) {
  if (is_npy(bytes)) {
    tokens = locate_npy_tokens(bytes, label);
    check_width(tokens.type, width, label, "header");
    return "NumPy";
  }
  const std::int32_t magic = first_integer(bytes);
  if (magic == kGpt2Magic || magic == kLlama3Magic) {
    tokens = magic == kGpt2Magic ? llmc_tokens(bytes, label, TokenType::kU16, 1)
                                 : llmc_tokens(bytes, label, TokenType::kU32, 7);
    check_width(tokens.type, width, label, "header");
    return "llm.c";
  }
  if (width) {
    tokens = raw_tokens(bytes, label, *width);
    return std::string(token_type_name(*width));
  }
  if (magic == kEvalMagic) bad(label, "it is an llm.c evaluation set (HellaSwag), not a corpus");
  if (magic == kModelMagic) bad(label, "it is an llm.c model checkpoint, not a corpus");
  if (as_text(bytes.first(std::min(bytes.size(), kIndexMagic.size()))) == kIndexMagic) {
    bad(label, "it is a Megatron index; name its .bin file");
  }
  std::optional<ForeignFormat> foreign = signed_format(bytes);
  if (!foreign) foreign = not_u16_tokens(bytes);
  if (foreign) {
    bad(label,
        fmt::format("it has no header and looks like {}; {} (tokens:FILE:u16 takes its bytes "
                    "as they are)",
                    foreign->what, foreign->remedy));
  }
  if (bytes.size() % 2 != 0) {
    bad(label, fmt::format("{} bytes are no whole number of u16 tokens, and there is neither a "
                           "header nor a Megatron .idx beside it (a text? use \"text:\"; 8-bit "
                           "tokens? tokens:FILE:u8)",
                           bytes.size()));
  }
  tokens = {bytes.data(), TokenType::kU16, static_cast<std::int64_t>(bytes.size() / 2)};
  return "nanoGPT";
}

TokenSpan locate_megatron_tokens(std::span<const std::byte> bin, std::span<const std::byte> index,
                                 const std::string& bin_label, const std::string& index_label) {
  if (index.size() < kIndexHeaderBytes || as_text(index.first(kIndexMagic.size())) != kIndexMagic) {
    bad(index_label, "it does not begin with a Megatron index header (34 bytes from \"MMIDIDX\")");
  }
  const auto version = load<std::uint64_t>(index, 9);
  if (version != 1) bad(index_label, fmt::format("Megatron index version {}; 1 is known", version));
  const TokenType type = megatron_type(load<std::uint8_t>(index, 17), index_label);
  const auto sequences = load<std::uint64_t>(index, 18);
  const auto documents = load<std::uint64_t>(index, 26);
  const std::uint64_t room = index.size() - kIndexHeaderBytes;
  // 4 bytes of length and 8 of position a sequence, 8 a document; a mode byte a sequence may
  // follow.
  if (sequences > room / 12 || documents > (room - 12 * sequences) / 8) {
    bad(index_label, fmt::format("{} sequences and {} documents do not fit in its {} bytes "
                                 "(truncated?)",
                                 sequences, documents, index.size()));
  }
  const std::uint64_t rest = room - 12 * sequences - 8 * documents;
  if (rest != 0 && rest != sequences) {
    bad(index_label, fmt::format("{} bytes follow its last document (0 or one mode byte for each "
                                 "of {} sequences are expected)",
                                 rest, sequences));
  }
  const std::size_t lengths = kIndexHeaderBytes;
  const std::size_t positions = lengths + 4 * sequences;
  const std::uint64_t width = token_bytes(type);
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const auto length = load<std::int32_t>(index, lengths + 4 * i);
    const auto position = load<std::int64_t>(index, positions + 8 * i);
    if (length < 0) bad(index_label, fmt::format("sequence {} has length {}", i, length));
    if (position < 0 || static_cast<std::uint64_t>(position) != at) {
      bad(index_label,
          fmt::format("sequence {} begins at byte {}, the one before ends at {}", i, position, at));
    }
    at += static_cast<std::uint64_t>(length) * width;
  }
  if (at != bin.size()) {
    bad(bin_label, fmt::format("it has {} bytes, its index covers {} (truncated, or not a pair?)",
                               bin.size(), at));
  }
  return {bin.data(), type, static_cast<std::int64_t>(at / width)};
}

TokenFile open_text_file(const Storage& storage, const std::filesystem::path& path,
                         ReadingRules rules, std::int64_t most_inflated) {
  TokenFile result{path, "text", storage.map(path), {}, {}};
  std::span<const std::byte> bytes = result.file.bytes();
  const std::string label = path.string();
  const Compression compression = compression_of(bytes);
  if (rules == ReadingRules::kOfFirst) {
    std::optional<ForeignFormat> format = foreign_text(bytes);
    if (compression != Compression::kNone) format = ForeignFormat{"compressed data", {}};
    result.as_it_lies = format.has_value();
    if (format) warn_of_first_rules(label, "it looks like " + format->what);
    result.tokens = raw_tokens(bytes, label, TokenType::kU8);
    return result;
  }
  const char* whose = "it";
  if (compression != Compression::kNone) {
    result.inflated = inflated(bytes, compression, label, most_inflated);
    bytes = result.inflated;
    whose = "what it unpacks to";
  }
  if (const auto format = foreign_text(bytes)) {
    // A width overrules a guess; the header of a .npy file overrules the width.
    const char* const as_bytes =
        is_npy(result.file.bytes()) ? "" : " (tokens:FILE:u8 takes the file's bytes as they are)";
    throw SystemError(fmt::format("{}: not a usable text: {} looks like {}; {}{}", label, whose,
                                  format->what, format->remedy, as_bytes));
  }
  result.tokens = raw_tokens(bytes, label, TokenType::kU8);
  return result;
}

TokenFile open_token_file(const Storage& storage, const std::filesystem::path& path,
                          std::optional<TokenType> width, ReadingRules rules) {
  std::filesystem::path bin = path;
  std::filesystem::path index = path;
  if (path.extension() == ".idx") {
    bin.replace_extension(".bin");
  } else {
    index.replace_extension(".idx");
  }
  TokenFile result{bin, "Megatron", storage.map(bin), {}, {}};
  const std::string label = bin.string();
  if (index != bin && storage.kind(index) != FileKind::kAbsent) {
    const MappedFile map = storage.map(index);
    result.tokens = locate_megatron_tokens(result.file.bytes(), map.bytes(), label, index.string());
    check_width(result.tokens.type, width, label, "index");
    return result;
  }
  const std::span<const std::byte> bytes = result.file.bytes();
  if (rules == ReadingRules::kOfFirst && has_no_header_of_first(bytes)) {
    read_as_first(result, label, width);
    return result;
  }
  result.format = locate_tokens(bytes, label, result.tokens, width);
  result.document_end = document_end_beside(storage, bin);
  if (result.format == "nanoGPT") refuse_lone_megatron(bin, index);
  return result;
}

std::string reading_of(const TokenFile& file) {
  const TokenSpan& tokens = file.tokens;
  return fmt::format("{} ids of {}{}{}{}", with_commas(tokens.count), token_type_name(tokens.type),
                     tokens.big_endian ? ", big-endian" : "",
                     is_tokenized(file.format) || is_conversations(file.format) ? ", " + file.format
                     : file.inflated.empty()                                    ? ""
                                                                                : ", inflated",
                     file.as_it_lies ? kAsItLies : "");
}

ReadingRules rules_of(std::span<const DataFile> begun_with) {
  const bool first = std::ranges::any_of(begun_with, [](const DataFile& file) {
    return file.reading.empty() || file.reading.ends_with(kAsItLies);
  });
  return first ? ReadingRules::kOfFirst : ReadingRules::kOfToday;
}

void write_llmc_tokens(Storage& storage, const std::filesystem::path& path,
                       std::span<const std::uint16_t> tokens) {
  if (tokens.size() > static_cast<std::size_t>(kMostLlmcTokens)) {
    throw ConfigError(fmt::format("{}: {} tokens do not fit in one llm.c file (at most 2^31 - 1)",
                                  path.string(), tokens.size()));
  }
  std::array<std::int32_t, kHeaderInts> header{};
  header[0] = kGpt2Magic;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(tokens.size());
  write_atomically(storage, path, [&](WritableFile& file) {
    file.append(std::as_bytes(std::span(header)));
    file.append(std::as_bytes(tokens));
  });
}

}  // namespace isthmus
