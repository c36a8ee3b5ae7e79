// SPDX-License-Identifier: Apache-2.0
// Signatures. A signature alone refuses a sound token file with the chance of its bits: fewer than
// 36 bits are borne out by the fields that follow.
#include "data/file_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/base/git_pointer.h"
#include "core/base/hash.h"

namespace isthmus {
namespace {

using Bytes = std::span<const std::byte>;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

unsigned byte_at(Bytes bytes, std::size_t at) {
  return at < bytes.size() ? static_cast<unsigned>(bytes[at]) : 0U;
}

std::uint64_t number_at(Bytes bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  if (width > bytes.size() || at > bytes.size() - width) return ~std::uint64_t{0};
  std::memcpy(&value, bytes.data() + at, width);
  return value;
}

bool is_gzip(Bytes bytes) {
  constexpr std::size_t kHeader = 10;
  if (bytes.size() < kHeader || !text_of(bytes).starts_with("\x1f\x8b\x08")) return false;
  const unsigned flags = byte_at(bytes, 3);
  const unsigned effort = byte_at(bytes, 8);
  const unsigned system = byte_at(bytes, 9);
  return (flags & 0xE0U) == 0 && (effort == 0 || effort == 2 || effort == 4) &&
         (system <= 13 || system == 255);
}

/// RFC 8878: a frame header without reserved bits, and a block of a known kind and size.
bool is_zstd(Bytes bytes) {
  constexpr std::uint32_t kSkippable = 0x184D2A50;
  for (int skipped = 0; skipped < 2; ++skipped) {
    const std::uint64_t magic = number_at(bytes, 0, 4);
    if ((magic & ~std::uint64_t{15}) != kSkippable) break;
    const std::uint64_t size = number_at(bytes, 4, 4);
    if (size > bytes.size() - 8) return false;
    bytes = bytes.subspan(8 + static_cast<std::size_t>(size));
  }
  if (!text_of(bytes).starts_with("\x28\xb5\x2f\xfd")) return false;
  constexpr std::array<std::size_t, 4> kDictionary = {0, 1, 2, 4};
  constexpr std::array<std::size_t, 4> kContent = {0, 2, 4, 8};
  const unsigned descriptor = byte_at(bytes, 4);
  if ((descriptor & 0x08U) != 0) return false;
  const bool single = (descriptor & 0x20U) != 0;
  const std::size_t content = descriptor >> 6U == 0 && single ? 1 : kContent[descriptor >> 6U];
  const std::size_t block = 5 + (single ? 0 : 1) + kDictionary[descriptor & 3U] + content;
  const std::uint64_t header = number_at(bytes, block, 3);
  constexpr std::uint64_t kLargestBlock = std::uint64_t{1} << 17;
  return header < (1U << 24U) && (header >> 1U & 3U) != 3 && header >> 3U <= kLargestBlock;
}

bool is_zip(Bytes bytes) {
  constexpr unsigned kNewestVersion = 63;
  return text_of(bytes).starts_with("PK\x03\x04") && byte_at(bytes, 4) <= kNewestVersion &&
         byte_at(bytes, 5) <= 3;
}

/// The form of lz4 -l: a name, and blocks of at most 8 MiB, which are compressed to little more.
bool is_legacy_lz4(Bytes bytes) {
  constexpr std::uint64_t kLargestBlock = 0x808198;
  constexpr std::uint64_t kName = 0x184C2102;
  if (number_at(bytes, 0, 4) != kName) return false;
  const std::uint64_t block = number_at(bytes, 4, 4);
  if (block == 0 || block > kLargestBlock || block + 8 > bytes.size()) return false;
  const auto end = static_cast<std::size_t>(block) + 8;
  const std::uint64_t next = number_at(bytes, end, 4);
  return end == bytes.size() || next <= kLargestBlock || next == kName;
}

bool is_lz4(Bytes bytes) {
  return text_of(bytes).starts_with("\x04\x22\x4d\x18") && (byte_at(bytes, 4) & 0xC2U) == 0x40 &&
         (byte_at(bytes, 5) & 0x8FU) == 0;
}

/// Its name, a version, and a dictionary of 4 KiB to 512 MiB.
bool is_lzip(Bytes bytes) {
  const unsigned dictionary = byte_at(bytes, 5) & 0x1FU;
  return text_of(bytes).starts_with("LZIP\x01") && dictionary >= 12 && dictionary <= 29;
}

bool is_parquet(Bytes bytes) {
  const std::string_view text = text_of(bytes);
  return text.starts_with("PAR1") && (text.ends_with("PAR1") || byte_at(bytes, 4) == 0x15);
}

/// The stream form, as `datasets` keeps its tables: a continuation mark, the size of a schema, and
/// the place of its root.
bool is_arrow_stream(Bytes bytes) {
  const std::uint64_t size = number_at(bytes, 4, 4);
  return number_at(bytes, 0, 4) == 0xFFFFFFFF && size < (1U << 24U) && size % 8 == 0 &&
         number_at(bytes, 8, 4) == 16;
}

/// The stream form before 0.15: no continuation mark; a message's table as every writer laid it
/// out.
bool is_old_arrow_stream(Bytes bytes) {
  constexpr std::uint64_t kTable = 0x0006000C000A0000;
  const std::uint64_t size = number_at(bytes, 0, 4);
  return size > 0 && size < (1U << 24U) && size + 4 <= bytes.size() &&
         number_at(bytes, 4, 4) == 16 && number_at(bytes, 8, 8) == kTable;
}

/// Feather's first version: the name at both ends.
bool is_old_feather(Bytes bytes) {
  return text_of(bytes).starts_with("FEA1") && text_of(bytes).ends_with("FEA1");
}

/// The name at both ends, and behind it at the end the length of what is before.
bool is_orc(Bytes bytes) {
  const std::string_view text = text_of(bytes);
  return text.starts_with("ORC") && bytes.size() > 7 && text.substr(text.size() - 4, 3) == "ORC";
}

/// The header of a container file is a map with the key avro.schema.
bool is_avro(Bytes bytes) {
  constexpr std::size_t kHeader = 4096;
  return text_of(bytes).starts_with("Obj\x01") &&
         text_of(bytes).substr(0, kHeader).find("avro.schema") != std::string_view::npos;
}

/// TensorFlow's records: a length, and its masked CRC-32C.
bool is_tfrecord(Bytes bytes) {
  constexpr std::size_t kFrame = 16;  // length, its checksum, that of what comes between
  constexpr std::uint32_t kMask = 0xA282EAD8U;
  if (bytes.size() <= kFrame || number_at(bytes, 0, 8) > bytes.size() - kFrame) return false;
  const std::uint32_t sum = crc32c(bytes.first(8));
  return number_at(bytes, 8, 4) == std::rotr(sum, 15) + kMask;
}

/// LZMA before xz: its usual parameters, the size of a dictionary, and that of the content. Ids
/// below 256 in 16 bits have every second byte 0: with dictionaries of 64 KiB to 128 MiB alone,
/// which compressors write, their chance is 4 in 94^5.
bool is_lzma(Bytes bytes) {
  constexpr std::uint64_t kLeastDictionary = std::uint64_t{1} << 16;
  constexpr std::uint64_t kMostDictionary = std::uint64_t{1} << 27;
  constexpr std::uint64_t kMostContent = std::uint64_t{1} << 40;
  const std::uint64_t dictionary = number_at(bytes, 1, 4);
  const std::uint64_t content = number_at(bytes, 5, 8);
  return byte_at(bytes, 0) == 0x5D && bytes.size() > 13 && dictionary >= kLeastDictionary &&
         dictionary <= kMostDictionary && std::has_single_bit(dictionary) &&
         byte_at(bytes, 13) == 0 && (content < kMostContent || content == ~std::uint64_t{0});
}

bool is_jpeg(Bytes bytes) {
  const std::string_view text = text_of(bytes);
  return text.starts_with("\xff\xd8\xff") &&
         (text.substr(0, 10).ends_with("JFIF") || text.substr(0, 10).ends_with("Exif"));
}

/// A media file of ISO: a box of a few brands, which names its kind.
bool is_mp4(Bytes bytes) {
  return text_of(bytes).substr(0, 8).ends_with("ftyp") && bytes.size() > 16 &&
         number_at(bytes, 0, 2) == 0 && byte_at(bytes, 2) <= 1;
}

/// Tags before the sound: version, no flags but the upper four, a size in bytes of seven bits.
bool is_id3(Bytes bytes) {
  const unsigned version = byte_at(bytes, 3);
  return text_of(bytes).starts_with("ID3") && version >= 2 && version <= 4 &&
         byte_at(bytes, 4) == 0 && (byte_at(bytes, 5) & 0x0FU) == 0 &&
         (number_at(bytes, 6, 4) & 0x80808080U) == 0;
}

/// Its first directory lies in the file, and has a few entries.
bool is_tiff(Bytes bytes) {
  if (number_at(bytes, 0, 4) != 0x002A4949) return false;
  const std::uint64_t directory = number_at(bytes, 4, 4);
  if (directory < 8 || directory % 2 != 0 || directory >= bytes.size()) return false;
  const std::uint64_t entries = number_at(bytes, static_cast<std::size_t>(directory), 2);
  return entries > 0 && entries < 256;
}

/// The text at its start may begin any text; the header ends with version and byte order.
bool is_matlab(Bytes bytes) {
  const std::uint64_t end = number_at(bytes, 124, 4);  // version 0x0100 and "IM", or swapped
  return text_of(bytes).starts_with("MATLAB 5.0 MAT-file") &&
         (end == 0x4D490100 || end == 0x494D0001);
}

bool is_bmp(Bytes bytes) {
  return text_of(bytes).starts_with("BM") && number_at(bytes, 2, 4) == bytes.size() &&
         number_at(bytes, 6, 4) == 0;
}

bool is_windows_program(Bytes bytes) {
  const std::uint64_t at = number_at(bytes, 0x3C, 4);
  return text_of(bytes).starts_with("MZ") && at < bytes.size() &&
         number_at(bytes, static_cast<std::size_t>(at), 4) == 0x00004550;
}

/// LMDB: the magic number and version of its first page, behind that page's header.
bool is_lmdb(Bytes bytes) { return number_at(bytes, 16, 8) == 0x00000001BEEFC0DE; }

/// Samples behind their offsets, as streaming datasets keep them (.mds, chunk-0-0.bin): how many,
/// and where each begins, up to the file's end.
bool is_sample_shard(Bytes bytes) {
  const std::uint64_t count = number_at(bytes, 0, 4);
  if (count == 0 || count >= bytes.size() / 4 - 1) return false;
  const auto offset = [&](std::uint64_t i) {
    return number_at(bytes, 4 * (static_cast<std::size_t>(i) + 1), 4);
  };
  if (offset(0) < 4 * (count + 2) || offset(count) != bytes.size()) return false;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (offset(i) > offset(i + 1)) return false;
  }
  return true;
}

bool is_matroska(Bytes bytes) {
  const std::string_view begin = text_of(bytes).substr(0, 64);
  return begin.starts_with("\x1a\x45\xdf\xa3") &&
         (begin.find("matroska") != std::string_view::npos ||
          begin.find("webm") != std::string_view::npos);
}

bool is_elf(Bytes bytes) {
  const auto one_or_two = [&](std::size_t at) {
    return byte_at(bytes, at) == 1 || byte_at(bytes, at) == 2;
  };
  return text_of(bytes).starts_with(
             "\x7f"
             "ELF") &&
         one_or_two(4) && one_or_two(5) && byte_at(bytes, 6) == 1;
}

bool is_safetensors(Bytes bytes) {
  constexpr std::size_t kLength = 8;
  if (bytes.size() < kLength) return false;
  const std::uint64_t length = number_at(bytes, 0, kLength);
  if (length < 2 || length > bytes.size() - kLength) return false;
  const std::string_view header = text_of(bytes).substr(kLength, static_cast<std::size_t>(length));
  return header.front() == '{' && (header.back() == '}' || header.back() == ' ') &&
         (header.find("\"dtype\"") != std::string_view::npos ||
          header.find("\"__metadata__\"") != std::string_view::npos);
}

bool is_hdf5(Bytes bytes) {
  for (std::size_t at = 0; at <= 4096; at = at == 0 ? 512 : 2 * at) {  // behind a user block
    if (at < bytes.size() && text_of(bytes).substr(at).starts_with("\x89HDF\r\n\x1a\n"))
      return true;
  }
  return false;
}

bool is_tar(Bytes bytes) {
  const std::string_view at = bytes.size() > 263 ? text_of(bytes).substr(257, 6) : "";
  return at == std::string_view("ustar\0", 6) || at == "ustar ";
}

/// Bytes of the argument of a pickle opcode, at `at`; kNone for what is no opcode.
constexpr std::size_t kNone = ~std::size_t{0};
std::size_t pickle_argument(unsigned opcode, Bytes bytes, std::size_t at) {
  const auto counted = [&](std::size_t width) {
    const std::uint64_t length = number_at(bytes, at, width);
    return length > bytes.size() ? kNone : width + static_cast<std::size_t>(length);
  };
  const auto lines = [&](int count) {
    std::size_t end = at;
    while (count-- > 0 && end != 0) end = text_of(bytes).find('\n', end) + 1;
    return end == 0 ? kNone : end - at;
  };
  const auto in = [opcode](std::string_view set) {
    return set.find(static_cast<char>(opcode)) != std::string_view::npos;
  };
  if (in("(012NQRabde}l]ost)u\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98")) return 0;
  if (in("Khq\x82")) return 1;
  if (in("M\x83")) return 2;
  if (in("Jjr\x84")) return 4;
  if (in("G\x95")) return 8;
  if (in("UC\x8a\x8c")) return counted(1);
  if (in("TXB\x8b")) return counted(4);
  if (in("\x8d\x8e\x96")) return counted(8);
  if (in("FILPSVgp")) return lines(1);
  if (in("ci")) return lines(2);
  return kNone;
}

/// Protocols 2 to 5 are opcodes one after another, and a stop at the end.
bool is_pickle(Bytes bytes) {
  // The first object of torch.save's old format: its magic number.
  if (text_of(bytes).starts_with("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.")) {
    return true;
  }
  // Protocols 0, which is text, and 1: a list or a dictionary, or an array of NumPy.
  const std::string_view text = text_of(bytes);
  if (text.starts_with("(lp0\n") || text.starts_with("(dp0\n") || text.starts_with("cnumpy.")) {
    return true;
  }
  if ((text.starts_with(std::string_view("]q\0(", 4)) ||
       text.starts_with(std::string_view("}q\0(", 4))) &&
      text.ends_with(".")) {
    return true;
  }
  if (byte_at(bytes, 0) != 0x80 || byte_at(bytes, 1) < 2 || byte_at(bytes, 1) > 5) return false;
  if (bytes.empty() || bytes.back() != std::byte{'.'}) return false;
  constexpr int kEnough = 10;         // about a quarter of all bytes are opcodes
  constexpr std::size_t kUnlike = 4;  // one id over and over is none of them
  constexpr int kEnoughToTheEnd = 6;
  std::size_t at = 2;
  std::bitset<256> seen;
  for (int walked = 0; at < bytes.size(); ++walked) {
    if (walked >= kEnough && seen.count() >= kUnlike) return true;
    const unsigned opcode = byte_at(bytes, at);
    seen.set(opcode);
    if (opcode == '.') {
      return at + 1 == bytes.size() && walked >= kEnoughToTheEnd && seen.count() > kUnlike;
    }
    const std::size_t argument = pickle_argument(opcode, bytes, at + 1);
    if (argument == kNone || argument > bytes.size() - at - 1) return false;
    if (opcode == 0x95 && number_at(bytes, at + 1, 8) == bytes.size() - at - 9) return true;
    at += 1 + argument;
  }
  return false;
}

struct Signature {
  std::string_view bytes;
  const char* what;
  const char* remedy;
};

constexpr const char* kUnpack = "unpack it and name what it holds";
constexpr const char* kSaveColumn =
    "read its column of token ids and save that with numpy.save, or its text as a file of its own";

constexpr const char* kName = "name a text or token ids";

constexpr Signature kSignatures[] = {
    {"/annex/objects/", "a git-annex pointer, which stands for a file that is not here",
     "fetch the file: git annex get"},
    {std::string_view("\xfd"
                      "7zXZ\0",
                      6),
     "xz data", "unpack it with unxz"},
    {"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", kUnpack},
    {"Rar!\x1a\x07", "a RAR archive", kUnpack},
    {std::string_view("\x89LZO\0\r\n\x1a\n", 9), "lzop data", "unpack it with lzop -d"},
    {std::string_view("\xff\x06\0\0sNaPpY", 10), "Snappy data", "unpack it with snzip -d"},
    {std::string_view("ARROW1\0\0", 8), "an Arrow table", kSaveColumn},
    {std::string_view("SQLite format 3\0", 16), "an SQLite database", kSaveColumn},
    {"%PDF-", "a PDF document", "extract its text with pdftotext"},
    {"\x89PNG\r\n\x1a\n", "a PNG image", kName},
    {"GIF87a", "a GIF image", kName},
    {"GIF89a", "a GIF image", kName},
    {"{\\rtf1", "a document in RTF", "save its text as a file of its own"},
    {std::string_view("OggS\0", 5), "an Ogg sound", kName},
    {std::string_view("fLaC\0\0\0\x22", 8), "a FLAC sound", kName},
    {std::string_view("\xca\xfe\xba\xbe\0\0\0", 7), "a Java class or a Mach-O program", kName},
    {std::string_view("\xcf\xfa\xed\xfe\x07\0\0\1", 8), "a program (Mach-O)", kName},
    {std::string_view("\xcf\xfa\xed\xfe\x0c\0\0\1", 8), "a program (Mach-O)", kName},
    {std::string_view("\0asm\1\0\0\0", 8), "a WebAssembly module", kName},
    {"RDX2\nX\n", "data of R", kSaveColumn},
    {"RDX3\nX\n", "data of R", kSaveColumn},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of Microsoft Office",
     "save its text as a file of its own"},
};

}  // namespace

Compression compression_of(Bytes bytes) {
  if (is_gzip(bytes)) return Compression::kGzip;
  if (is_zstd(bytes)) return Compression::kZstd;
  return Compression::kNone;
}

std::optional<ForeignFormat> signed_format(Bytes bytes) {
  const std::string_view text = text_of(bytes);
  if (is_git_pointer(text)) return ForeignFormat{kGitPointer, kFetchGitFile};
  for (const Signature& signature : kSignatures) {
    if (text.starts_with(signature.bytes)) return ForeignFormat{signature.what, signature.remedy};
  }
  if (is_gzip(bytes)) return ForeignFormat{"gzip data", "unpack it with gunzip"};
  if (is_zstd(bytes)) return ForeignFormat{"zstd data", "unpack it with unzstd"};
  if (is_lz4(bytes) || is_legacy_lz4(bytes))
    return ForeignFormat{"lz4 data", "unpack it with unlz4"};
  if (is_lzip(bytes)) return ForeignFormat{"lzip data", "unpack it with lzip -d"};
  if (text.starts_with("BZh") && text.substr(0, 10).ends_with("1AY&SY")) {
    return ForeignFormat{"bzip2 data", "unpack it with bunzip2"};
  }
  if (is_zip(bytes)) {
    return ForeignFormat{"a zip archive (NumPy's .npz and PyTorch's files are such, too)",
                         "take out what holds the token ids, and save it with numpy.save"};
  }
  if (is_tar(bytes)) return ForeignFormat{"a tar archive", kUnpack};
  if (is_parquet(bytes)) return ForeignFormat{"a Parquet table", kSaveColumn};
  if (is_arrow_stream(bytes)) return ForeignFormat{"an Arrow table (of `datasets`)", kSaveColumn};
  if (is_old_arrow_stream(bytes)) return ForeignFormat{"an Arrow table (before 0.15)", kSaveColumn};
  if (is_old_feather(bytes)) return ForeignFormat{"a Feather table (version 1)", kSaveColumn};
  if (is_orc(bytes)) return ForeignFormat{"an ORC table", kSaveColumn};
  if (is_avro(bytes)) return ForeignFormat{"an Avro file", kSaveColumn};
  if (is_tfrecord(bytes)) return ForeignFormat{"TensorFlow's records (TFRecord)", kSaveColumn};
  if (is_lzma(bytes)) return ForeignFormat{"LZMA data", "unpack it with unlzma"};
  if (is_jpeg(bytes)) return ForeignFormat{"a JPEG image", kName};
  if (is_tiff(bytes)) return ForeignFormat{"a TIFF image", kName};
  if (is_matlab(bytes)) return ForeignFormat{"a MATLAB file", kSaveColumn};
  if (is_bmp(bytes)) return ForeignFormat{"a BMP image", kName};
  if (text.starts_with("RIFF")) {
    const std::string_view kind = text.substr(0, 12).substr(std::min<std::size_t>(8, text.size()));
    if (kind == "WEBP") return ForeignFormat{"a WebP image", kName};
    if (kind == "WAVE") return ForeignFormat{"a WAVE sound", kName};
    if (kind == "AVI ") return ForeignFormat{"a film (AVI)", kName};
  }
  if (is_mp4(bytes)) return ForeignFormat{"a film or sound (MP4)", kName};
  if (is_matroska(bytes)) return ForeignFormat{"a film (Matroska, WebM)", kName};
  if (is_id3(bytes)) return ForeignFormat{"an MP3 sound", kName};
  if (is_elf(bytes)) return ForeignFormat{"a program (ELF)", kName};
  if (is_windows_program(bytes)) return ForeignFormat{"a program (Windows)", kName};
  if (is_lmdb(bytes)) return ForeignFormat{"an LMDB database", kSaveColumn};
  if (text.substr(0, 12).ends_with("DUCK") && number_at(bytes, 12, 8) < 1024) {
    return ForeignFormat{"a DuckDB database", kSaveColumn};
  }
  if (is_sample_shard(bytes)) {
    return ForeignFormat{"a shard of samples (MosaicML's .mds, LitData's chunks)",
                         "read its samples and save their token ids with numpy.save"};
  }
  if (is_hdf5(bytes)) return ForeignFormat{"an HDF5 file", kSaveColumn};
  if (is_pickle(bytes)) {
    return ForeignFormat{"a Python pickle", "load it and save the token ids with numpy.save"};
  }
  if (is_safetensors(bytes)) {
    return ForeignFormat{"a safetensors file, which holds a model's weights", kName};
  }
  if (text.starts_with("GGUF") && number_at(bytes, 4, 4) <= 16) {
    return ForeignFormat{"a GGUF file, which holds a model's weights", kName};
  }
  return {};
}

}  // namespace isthmus
