// SPDX-License-Identifier: Apache-2.0
#include "data/token_file.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "data/compressed_text.h"
#include "data/file_format.h"
#include "data/npy_file.h"
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

/// A width that the source says beside what a header says.
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

/// Megatron names what it makes NAME_KEY_document.bin, or _sentence.bin; only the index says the
/// width.
void refuse_lone_megatron(const std::filesystem::path& bin, const std::filesystem::path& index) {
  const std::string stem = bin.stem().string();
  if (bin.extension() != ".bin" || !(stem.ends_with("_document") || stem.ends_with("_sentence"))) {
    return;
  }
  bad(bin.string(),
      fmt::format("it is named as Megatron's files are, whose width only their index says, and {} "
                  "is not there; put it beside it, or say the width, tokens:FILE:u16 or "
                  "tokens:FILE:i32",
                  index.filename().string()));
}

}  // namespace

std::string locate_tokens(std::span<const std::byte> bytes, const std::string& label,
                          TokenSpan& tokens, std::optional<TokenType> width) {
  if (is_npy(bytes)) {
    tokens = locate_npy_tokens(bytes, label);
    check_width(tokens.type, width, label, "header");
    return "NumPy";
  }
  const std::int32_t magic = bytes.size() >= 4 ? load<std::int32_t>(bytes, 0) : 0;
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

TokenFile open_text_file(const Storage& storage, const std::filesystem::path& path) {
  TokenFile result{path, "text", storage.map(path), {}, {}};
  std::span<const std::byte> bytes = result.file.bytes();
  const std::string label = path.string();
  const auto refuse = [&label](const ForeignFormat& format, const char* whose) {
    throw SystemError(
        fmt::format("{}: not a usable text: {} looks like {}; {} (tokens:FILE:u8 takes the file's "
                    "bytes as they "
                    "are)",
                    label, whose, format.what, format.remedy));
  };
  const char* whose = "it";
  if (const Compression compression = compression_of(bytes); compression != Compression::kNone) {
    result.inflated = inflated(bytes, compression, label);
    bytes = result.inflated;
    whose = "what it unpacks to";
  }
  if (is_npy(bytes)) refuse({"a .npy file", "name it with tokens:"}, whose);
  if (const auto format = signed_format(bytes)) refuse(*format, whose);
  if (const auto format = wide_text(bytes)) refuse(*format, whose);
  result.tokens = {bytes.data(), TokenType::kU8, static_cast<std::int64_t>(bytes.size())};
  return result;
}

TokenFile open_token_file(const Storage& storage, const std::filesystem::path& path,
                          std::optional<TokenType> width) {
  std::filesystem::path bin = path;
  std::filesystem::path index = path;
  if (path.extension() == ".idx") {
    bin.replace_extension(".bin");
  } else {
    index.replace_extension(".idx");
  }
  TokenFile result{bin, "Megatron", storage.map(bin), {}, {}};
  if (index != bin && storage.kind(index) != FileKind::kAbsent) {
    const MappedFile map = storage.map(index);
    result.tokens =
        locate_megatron_tokens(result.file.bytes(), map.bytes(), bin.string(), index.string());
    check_width(result.tokens.type, width, bin.string(), "index");
    return result;
  }
  result.format = locate_tokens(result.file.bytes(), bin.string(), result.tokens, width);
  if (result.format == "nanoGPT") refuse_lone_megatron(bin, index);
  return result;
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
