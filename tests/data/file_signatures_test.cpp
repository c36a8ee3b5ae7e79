// SPDX-License-Identifier: Apache-2.0
// Formats that no data of a run is of: media, programs, databases, shards of samples, and ids as
// floating-point numbers of 16 bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "data/file_format.h"

namespace isthmus::this_file {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string signed_as(const std::string& bytes) {
  const auto format = signed_format(bytes_of(bytes));
  return format ? format->what + "; " + format->remedy : "";
}

std::string guessed_as(const std::string& bytes) {
  const auto format = not_u16_tokens(bytes_of(bytes));
  return format ? format->what + "; " + format->remedy : "";
}

template <typename T>
std::string packed(const std::vector<T>& values, bool big_endian = false) {
  std::string bytes;
  for (const T value : values) {
    std::string one(reinterpret_cast<const char*>(&value), sizeof(T));
    if (big_endian) std::reverse(one.begin(), one.end());
    bytes += one;
  }
  return bytes;
}

std::string operator""_b(const char* text, std::size_t size) { return {text, size}; }

TEST(FileSignatures, MediaProgramsAndDatabasesAreNamed) {
  const std::string tail(600, '\x2b');
  std::string matlab = "MATLAB 5.0 MAT-file, Platform: GLNXA64";
  matlab.resize(124, ' ');
  EXPECT_EQ(signed_as(matlab + " and other formats, in words"), "") << "a text on such files";
  const std::string size_of_bmp = packed<std::uint32_t>({614});
  std::string program = "MZ" + std::string(0x3A, '\x11') + packed<std::uint32_t>({128});
  program += std::string(128 - program.size(), '\x11') + "PE\0\0"_b;
  std::string lmdb = std::string(16, '\0') + packed<std::uint32_t>({0xBEEFC0DE, 1});
  const std::vector<std::pair<const char*, std::string>> files = {
      {"Ogg", "OggS\0\2"_b},
      {"FLAC", "fLaC\0\0\0\x22"_b},
      {"WAVE", "RIFF\x24\x10\0\0WAVEfmt "_b},
      {"WebP", "RIFF\x24\x10\0\0WEBPVP8 "_b},
      {"AVI", "RIFF\x24\x10\0\0AVI LIST"_b},
      {"MP4",
       "\0\0\0\x20"
       "ftypisom\0\0\2\0"_b},
      {"Matroska", "\x1a\x45\xdf\xa3\x93\x42\x82\x88matroska"_b},
      {"MP3", "ID3\3\0\0\0\0\x1f\x76"_b},
      {"TIFF", "II*\0\x08\0\0\0\x10\0"_b},
      {"BMP", "BM" + size_of_bmp + "\0\0\0\0\x36\0\0\0"_b},
      {"Java", "\xca\xfe\xba\xbe\0\0\0\x34"_b},
      {"Mach-O", "\xcf\xfa\xed\xfe\x0c\0\0\1"_b},
      {"Windows", program},
      {"WebAssembly", "\0asm\1\0\0\0"_b},
      {"MATLAB", matlab + "\0\1IM"_b},
      {"of R", "RDX3\nX\n"},
      {"LMDB", lmdb},
      {"DuckDB",
       "\1\2\3\4\5\6\7\x08"
       "DUCK\x40\0\0\0\0\0\0\0"_b},
      {"RTF", "{\\rtf1\\ansi"}};
  for (const auto& [what, begin] : files) EXPECT_THAT(signed_as(begin + tail), HasSubstr(what));
}

TEST(FileSignatures, ShardsOfSamplesAreNamedByTheirOffsets) {
  const std::string config = R"({"version":2,"column_names":["tokens"]})";
  for (const std::string& between : {config, std::string()}) {
    std::vector<std::uint32_t> head = {5};
    auto at = static_cast<std::uint32_t>(4 * 7 + between.size());
    for (int i = 0; i <= 5; ++i, at += 40) head.push_back(at);
    const std::string shard = packed(head) + between + std::string(200, '\x2b');
    EXPECT_THAT(signed_as(shard), HasSubstr("shard of samples"));
    EXPECT_EQ(signed_as(shard + "  "), "") << "its last offset is not its end";
    std::swap(head[2], head[3]);
    EXPECT_EQ(signed_as(packed(head) + between + std::string(200, '\x2b')), "");
  }
}

/// A half, of whole numbers up to 2048 exact.
std::uint16_t half_of(int value) {
  if (value == 0) return 0;
  const int exponent = std::ilogb(value);
  const int mantissa = static_cast<int>(std::lround(std::ldexp(value, 10 - exponent))) - 1024;
  return static_cast<std::uint16_t>(((exponent + 15) << 10) + mantissa);
}

std::uint16_t bfloat_of(int value) {
  const auto number = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, 4);
  return static_cast<std::uint16_t>(bits >> 16U);
}

TEST(FileSignatures, IdsOfSixteenFloatingPointBitsAreNamed) {
  const Rng rng{5, Stream::kTestData};
  for (const double vocab : {128.0, 256.0, 2000.0}) {
    std::vector<std::uint16_t> halves, bfloats;
    for (std::uint64_t i = 0; i < 6000; ++i) {
      const int id = static_cast<int>(std::pow(vocab, rng.uniform(i))) - 1;
      halves.push_back(half_of(id));
      bfloats.push_back(bfloat_of(id));
    }
    EXPECT_THAT(guessed_as(packed(halves)), HasSubstr("16-bit floating-point")) << vocab;
    EXPECT_THAT(guessed_as(packed(halves, true)), HasSubstr("big-endian 16-bit floating-point"));
    EXPECT_THAT(guessed_as(packed(bfloats)), HasSubstr("bfloat16")) << vocab;
    EXPECT_THAT(guessed_as(packed(bfloats, true)), HasSubstr("big-endian bfloat16")) << vocab;
  }
}

// Of few values, or of high ones that are whole whatever their low byte, nothing is known.
TEST(FileSignatures, SoundIdsAreNoSixteenBitFloats) {
  const Rng rng{6, Stream::kTestData};
  for (const int from : {0, 15360, 25600, 26000}) {
    std::vector<std::uint16_t> ids;
    for (std::uint64_t i = 0; i < 6000; ++i) {
      ids.push_back(static_cast<std::uint16_t>(from + rng.uniform(i) * 4000));
    }
    EXPECT_EQ(guessed_as(packed(ids)), "") << from;
  }
  EXPECT_EQ(guessed_as(packed(std::vector<std::uint16_t>(4000, half_of(2)))), "");
}

}  // namespace
}  // namespace isthmus::this_file
