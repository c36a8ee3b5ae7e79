// SPDX-License-Identifier: Apache-2.0
// What token sources and texts refuse, what they read instead, and that sound u16 files pass.
#include "data/file_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/base/rng.h"
#include "core/temporary_directory.h"
#include "data/compressed_text.h"
#include "data/dataset.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename T>
std::string packed_as(const std::vector<std::int64_t>& ids, bool big_endian = false) {
  std::string bytes;
  for (const std::int64_t id : ids) {
    const auto value = static_cast<T>(id);
    std::string one(reinterpret_cast<const char*>(&value), sizeof(T));
    if (big_endian) std::reverse(one.begin(), one.end());
    bytes += one;
  }
  return bytes;
}

/// Ids of a vocabulary, with frequencies about as those of words: id r has one in r.
std::vector<std::int64_t> zipf_ids(std::uint64_t seed, std::size_t count, std::int64_t vocab) {
  const Rng rng{seed, Stream::kTestData};
  std::vector<std::int64_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<std::int64_t>(std::pow(static_cast<double>(vocab), rng.uniform(i))) - 1;
  }
  return ids;
}

std::vector<std::int64_t> uniform_ids(std::uint64_t seed, std::size_t count, std::int64_t from,
                                      std::int64_t to) {
  const Rng rng{seed, Stream::kTestData};
  std::vector<std::int64_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = from + static_cast<std::int64_t>(rng.uniform(i) * static_cast<double>(to - from));
  }
  return ids;
}

std::string unhex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::string utf16(const std::u16string& text, bool big_endian, bool mark) {
  std::vector<std::int64_t> units;
  if (mark) units.push_back(0xFEFF);
  for (const char16_t unit : text) units.push_back(unit);
  return packed_as<std::uint16_t>(units, big_endian);
}

const std::string kEnglish =
    "The quick brown fox jumps over the lazy dog; a dozen wizards' Vex-Jinxes BUMP 7 quiet (old) "
    "folk.\nNo two lines here are alike, and so the bytes at even and odd places vary: 0123456789, "
    "KLMNOPQRSTUVWXYZ, [abc] {def} <ghi> @jkl #mno $pqr %stu ^vwx &yz *!? ~`|\\/_=+\n";

class FileFormats : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) {
    write_atomically(storage_, directory_ / name, bytes);
  }
  Dataset open(const std::string& source, ReadingRules rules = ReadingRules::kOfToday) {
    DataConfig config;
    config.source = source;
    return Dataset::open(storage_, config, directory_.path(), rules);
  }
  std::string reading(const std::string& source, ReadingRules rules = ReadingRules::kOfToday) {
    return open(source, rules).fingerprint().at(0).reading;
  }
  std::vector<std::int64_t> ids(const std::string& source) {
    const Dataset data = open(source);
    std::vector<std::int32_t> read(static_cast<std::size_t>(data.tokens()));
    data.read(0, read);
    return {read.begin(), read.end()};
  }
  /// What opening says, "" where it opens.
  std::string said(const std::string& source) {
    try {
      (void)open(source);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  TemporaryDirectory directory_;
  SystemStorage storage_;
};

TEST_F(FileFormats, WiderIntegersAreNamedAndReadWithTheWidthThatIsSaid) {
  for (const std::int64_t vocab : {300, 32000, 65536, 128256, 262144}) {
    const std::vector<std::int64_t> values = zipf_ids(1, 4000, vocab);
    put("u32.bin", packed_as<std::uint32_t>(values));
    put("i64.bin", packed_as<std::int64_t>(values));
    EXPECT_THAT(said("tokens:u32.bin"),
                AllOf(HasSubstr("u32.bin"), HasSubstr("looks like 32-bit integers"),
                      HasSubstr("tokens:FILE:u32"), HasSubstr("tokens:FILE:u16 takes its bytes")))
        << vocab;
    EXPECT_THAT(said("tokens:i64.bin"),
                AllOf(HasSubstr("looks like 64-bit integers"), HasSubstr("tokens:FILE:i64")))
        << vocab;
    EXPECT_EQ(ids("tokens:u32.bin:u32"), values);
    EXPECT_EQ(ids("tokens:u32.bin:i32"), values);
    EXPECT_EQ(ids("tokens:i64.bin:i64"), values);
    EXPECT_EQ(ids("tokens:u32.bin:u16").size(), 2 * values.size()) << "the width overrules";
  }
}

TEST_F(FileFormats, NegativeIntegersAreNamedByTheirSign) {
  std::vector<std::int64_t> values = zipf_ids(2, 2000, 32000);
  for (std::size_t i = 0; i < values.size(); i += 7) values[i] = -100;  // ignored by a loss
  put("i32.bin", packed_as<std::int32_t>(values));
  put("i64.bin", packed_as<std::int64_t>(values));
  EXPECT_THAT(said("tokens:i32.bin"), HasSubstr("tokens:FILE:i32"));
  EXPECT_THAT(said("tokens:i64.bin"), HasSubstr("tokens:FILE:i64"));
}

TEST_F(FileFormats, OtherByteOrdersAreNamed) {
  for (const std::int64_t vocab : {300, 32000, 50257, 60000}) {
    const std::vector<std::int64_t> values = uniform_ids(3, 8000, 0, vocab);
    put("u16", packed_as<std::uint16_t>(values, true));
    put("u32", packed_as<std::uint32_t>(values, true));
    put("i64", packed_as<std::int64_t>(values, true));
    EXPECT_THAT(said("tokens:u16"), HasSubstr("looks like big-endian 16-bit integers")) << vocab;
    EXPECT_THAT(said("tokens:u32"), HasSubstr("looks like big-endian 32-bit integers")) << vocab;
    EXPECT_THAT(said("tokens:i64"), HasSubstr("looks like big-endian 64-bit integers")) << vocab;
    EXPECT_EQ(said("tokens:u16:u16"), "");
  }
}

TEST_F(FileFormats, BytesAreNamedAndReadAsBytesWhereThatIsSaid) {
  put("text.bin", kEnglish);
  put("bytes.bin", packed_as<std::uint8_t>(uniform_ids(4, 4000, 0, 100)));
  EXPECT_THAT(said("tokens:text.bin"), AllOf(HasSubstr("looks like text"), HasSubstr("text:FILE")));
  EXPECT_THAT(said("tokens:bytes.bin"), HasSubstr("8-bit"));
  std::string numbers;
  for (const std::int64_t id : zipf_ids(4, 500, 50257)) numbers += std::to_string(id) + " ";
  put("numbers.txt", numbers);
  EXPECT_THAT(said("tokens:numbers.txt"), HasSubstr("looks like text"));
  EXPECT_EQ(open("tokens:text.bin:u8").tokens(), static_cast<std::int64_t>(kEnglish.size()));
  EXPECT_EQ(ids("tokens:text.bin:u8")[0], 'T');
  EXPECT_EQ(open("tokens:text.bin:u8").vocab_bound(), 256);
}

// The null hypothesis of the guesses: none of these is refused.
TEST_F(FileFormats, SoundU16FilesOfAllSizesAndVocabulariesPass) {
  for (const std::size_t count : {1, 2, 7, 40, 300, 5000, 70000}) {
    for (const std::int64_t vocab :
         {1, 2, 3, 10, 16, 17, 64, 200, 256, 257, 300, 1000, 5000, 32000, 50257, 65024, 65536}) {
      put("zipf", packed_as<std::uint16_t>(zipf_ids(count, count, vocab)));
      EXPECT_EQ(said("tokens:zipf"), "") << count << " of " << vocab;
      put("uniform", packed_as<std::uint16_t>(uniform_ids(count, count, 0, vocab)));
      EXPECT_EQ(said("tokens:uniform"), "") << count << " of " << vocab;
    }
  }
}

TEST_F(FileFormats, SoundU16FilesOfOddOrderPass) {
  const auto passes = [this](const std::vector<std::int64_t>& values) {
    put("odd.bin", packed_as<std::uint16_t>(values));
    EXPECT_EQ(said("tokens:odd.bin"), "") << values[0] << " " << values[1] << " " << values[2];
  };
  std::vector<std::int64_t> rising(60000);
  std::iota(rising.begin(), rising.end(), 0);
  passes(rising);
  for (const std::int64_t period : {1, 2, 3, 4, 16, 17, 255, 256, 257, 1000}) {
    std::vector<std::int64_t> turning(rising);
    for (std::int64_t& id : turning) id %= period;
    passes(turning);
  }
  passes(std::vector<std::int64_t>(5000, 0));       // padding alone
  passes(std::vector<std::int64_t>(5000, 0x2020));  // which is also spaces
  passes(std::vector<std::int64_t>(5000, 65535));
  for (const std::int64_t from : {256, 8192, 8224, 20000, 40000}) {  // a part of a vocabulary
    for (const std::int64_t width : {20, 50, 95, 300})
      passes(uniform_ids(5, 4000, from, from + width));
  }
  std::vector<std::int64_t> padded = zipf_ids(6, 400, 32000);
  padded.resize(20000, 0);
  passes(padded);
  std::vector<std::int64_t> specials = uniform_ids(7, 4000, 256, 306);  // and ids 0 to 3
  for (std::size_t i = 0; i < specials.size(); i += 9)
    specials[i] = static_cast<std::int64_t>(i % 4);
  passes(specials);
}

// Twenty ids of 32 bits: that chance puts their ten zeros at odd places is 1 in 184,756.
TEST_F(FileFormats, FewValuesProveNothing) {
  put("few", packed_as<std::uint32_t>({5, 700, 31, 2000, 8, 90, 17, 4000, 23, 61}));
  EXPECT_EQ(said("tokens:few"), "");
  std::vector<std::int64_t> more = uniform_ids(8, 24, 1, 32000);
  put("more", packed_as<std::uint32_t>(more));  // 1 in 3.2e13
  EXPECT_NE(said("tokens:more"), "");
  put("short", kEnglish.substr(0, 20));
  EXPECT_EQ(said("tokens:short"), "");
}

TEST_F(FileFormats, LargeFilesAreLookedAtAllOver) {
  std::string large = packed_as<std::uint32_t>(zipf_ids(9, 700000, 32000));
  put("large", large);
  EXPECT_THAT(said("tokens:large"), HasSubstr("32-bit"));
  // Sound tokens between: not every second value is a high half.
  const std::string sound = packed_as<std::uint16_t>(zipf_ids(9, 400000, 32000));
  put("mixed", large.substr(0, 800000) + sound);
  EXPECT_EQ(said("tokens:mixed"), "");
}

TEST_F(FileFormats, WidthsAreCheckedAgainstTheFile) {
  put("odd", "abc");
  EXPECT_THAT(said("tokens:odd:u16"), AllOf(HasSubstr("says u16"), HasSubstr("3 bytes")));
  EXPECT_THAT(said("tokens:odd:u24"), AllOf(HasSubstr("\"u24\" is no width"), HasSubstr("u32")));
  put("negative", packed_as<std::int32_t>({1, -2}));
  EXPECT_THAT(message_of<SystemError>([&] { (void)ids("tokens:negative:i32"); }),
              HasSubstr("token id -2 at position 1"));
  put("a:u16", packed_as<std::uint16_t>({7, 8}));  // a name of old
  EXPECT_EQ(ids("tokens:a:u16"), (std::vector<std::int64_t>{7, 8}));
  EXPECT_EQ(ids("tokens:a:u16:u8"), (std::vector<std::int64_t>{7, 0, 8, 0}));
  put("x1.bin", packed_as<std::uint32_t>({1, 100000}));
  put("x2.bin", packed_as<std::uint32_t>({3}));
  EXPECT_EQ(ids("tokens:x*.bin:u32"), (std::vector<std::int64_t>{1, 100000, 3}));
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                const std::string& fortran = "False", char version = 1) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
  const std::size_t fixed = version == 1 ? 10 : 12;
  header.resize((fixed + header.size() + 64) / 64 * 64 - fixed - 1, ' ');
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += version;
  bytes += '\0';
  bytes += static_cast<char>(header.size() % 256);
  bytes += static_cast<char>(header.size() / 256);
  if (version > 1) bytes += std::string(2, '\0');
  return bytes + header + data;
}

TEST_F(FileFormats, NumpyHeadersSayTypeOrderAndShape) {
  const std::vector<std::int64_t> values = {1, 2, 100, 127};
  const auto reads = [&](const std::string& descr, const std::string& data) {
    put("x.npy", npy(descr, "(4,)", data));
    EXPECT_EQ(ids("tokens:x.npy"), values) << descr;
    EXPECT_EQ(open("tokens:x.npy").format(), "NumPy");
  };
  reads("|u1", packed_as<std::uint8_t>(values));
  reads("|i1", packed_as<std::int8_t>(values));
  for (const bool big : {false, true}) {
    const std::string order = big ? ">" : "<";
    reads(order + "u2", packed_as<std::uint16_t>(values, big));
    reads(order + "i2", packed_as<std::int16_t>(values, big));
    reads(order + "u4", packed_as<std::uint32_t>(values, big));
    reads(order + "i4", packed_as<std::int32_t>(values, big));
    reads(order + "u8", packed_as<std::uint64_t>(values, big));
    reads(order + "i8", packed_as<std::int64_t>(values, big));
  }
  for (const char version : {'\1', '\2', '\3'}) {
    put("x.npy", npy("<u2", "(2, 2)", packed_as<std::uint16_t>(values), "False", version));
    EXPECT_EQ(ids("tokens:x.npy"), values);
  }
  EXPECT_EQ(ids("tokens:x.npy:u16"), values);
  EXPECT_THAT(said("tokens:x.npy:u32"),
              AllOf(HasSubstr("the source says u32"), HasSubstr("header says u16")));
}

TEST_F(FileFormats, NumpyFilesThatHoldNoTokensAreRefused) {
  const auto refused = [&](const std::string& bytes) {
    put("x.npy", bytes);
    return said("tokens:x.npy");
  };
  const std::string four(8, '\1');
  EXPECT_THAT(refused(npy("<f4", "(2,)", four)), HasSubstr("its values are '<f4'"));
  EXPECT_THAT(refused(npy("|b1", "(8,)", four)), HasSubstr("'|b1'"));
  EXPECT_THAT(refused(npy("|O", "(2,)", four)), HasSubstr("'|O'"));
  EXPECT_THAT(refused(npy("<u2", "(2, 2)", four, "True")), HasSubstr("Fortran"));
  EXPECT_THAT(refused(npy("<u2", "(5,)", four)), HasSubstr("counts 5 values of 2 bytes, but 8"));
  EXPECT_THAT(refused(npy("<u2", "(-1,)", four)), HasSubstr("its shape is (-1,)"));
  EXPECT_THAT(refused(npy("<u2", "(281474976710656, 281474976710656)", four)),
              HasSubstr("its shape is"));
  EXPECT_THAT(refused(npy("<u2", "(4,)", four).substr(0, 40)), HasSubstr("truncated"));
  EXPECT_THAT(refused("\x93NUMPY\x01"), HasSubstr("truncated"));
  EXPECT_THAT(refused(std::string("\x93NUMPY\x09\0\0\0\0\0", 12)), HasSubstr("format version 9"));
  EXPECT_THAT(said("text:x.npy"), HasSubstr(".npy file"));
  put("n.npy", npy("<i2", "(2,)", packed_as<std::int16_t>({3, -1})));
  EXPECT_THAT(message_of<SystemError>([&] { (void)ids("tokens:n.npy"); }),
              HasSubstr("token id -1 at position 1"));
}

// gzip of Python's gzip module, zstd of the program of that name.
const std::string kLine = "to be, or not to be: that is the question\n";
const std::string kGzip = unhex(
    "1f8b08000000000002ff2bc957484ad551c82f52c8cb2f512801f1ac144a32124b14328b8174aa4261696a7149667e"
    "1e170046f067f92a000000");
const std::string kZstd = unhex(
    "28b52ffd242a510100746f2062652c206f72206e6f7420746f2062653a207468617420697320746865207175657374"
    "696f6e0a0d923e77");

TEST_F(FileFormats, CompressedTextsAreInflated) {
  const auto text_of = [this](const std::string& source) {
    const std::vector<std::int64_t> bytes = ids(source);
    return std::string(bytes.begin(), bytes.end());
  };
  put("a.gz", kGzip);
  put("a.zst", kZstd);
  EXPECT_EQ(text_of("text:a.gz"), kLine);
  EXPECT_EQ(text_of("text:a.zst"), kLine);
  EXPECT_EQ(open("text:a.gz").format(), "text");
  EXPECT_EQ(open("text:a.gz").fingerprint()[0].bytes, kGzip.size()) << "of the file as it lies";
  put("b.gz", kGzip + kGzip + std::string(512, '\0'));  // members, and a tape's padding
  put("b.zst", kZstd + kZstd);
  EXPECT_EQ(text_of("text:b.gz"), kLine + kLine);
  EXPECT_EQ(text_of("text:b.zst"), kLine + kLine);
  put("c.txt", kLine);
  EXPECT_EQ(text_of("text:[ac].*"), kLine + kLine + kLine);
}

TEST_F(FileFormats, DamagedCompressedTextsAreRefused) {
  const auto said_of = [this](const std::string& bytes) {
    put("x", bytes);
    return said("text:x");
  };
  for (const std::string& whole : {kGzip, kZstd}) {
    EXPECT_THAT(said_of(whole.substr(0, whole.size() - 6)),
                AllOf(HasSubstr("damaged"), HasSubstr("ends in the middle")));
    std::string flipped = whole;
    flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 0x55);
    EXPECT_THAT(said_of(flipped), HasSubstr("damaged"));
    EXPECT_THAT(said_of(whole + "rest of another file"), HasSubstr("damaged"));
  }
}

struct Foreign {
  const char* what;
  std::string bytes;
};

std::vector<Foreign> foreign_files() {
  const std::string tail(400, '\7');
  std::string tar(512, '\0');
  tar.replace(257, 6, std::string("ustar\0", 6));
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}          )";
  const std::string safetensors =
      packed_as<std::uint64_t>({static_cast<std::int64_t>(header.size())}) + header + tail;
  return {
      {"Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"},
      {"Git LFS",
       "version https://git-lfs.github.com/spec/v1\r\noid sha256:4d7a\r\nsize 12345\r\n"},
      {"Git LFS", "version https://hawser.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"},
      {"git-annex", "/annex/objects/SHA256E-s31390--f50d7a.txt\n"},
      {"xz", std::string("\xfd"
                         "7zXZ\0",
                         6) +
                 tail},
      {"bzip2", "BZh91AY&SY" + tail},
      {"lz4", "\x04\x22\x4d\x18\x64\x40\xa7" + tail},
      {"lz4", "\x02\x21\x4c\x18" + packed_as<std::uint32_t>({400}) + tail},
      {"lz4", "\x02\x21\x4c\x18" + packed_as<std::uint32_t>({196}) + tail.substr(0, 196) +
                  packed_as<std::uint32_t>({196}) + tail.substr(0, 196)},
      {"lzip", "LZIP\x01\x0c" + tail},
      {"lzop", std::string("\x89LZO\0\r\n\x1a\n", 9) + tail},
      {"7-Zip", "7z\xbc\xaf\x27\x1c" + tail},
      {"zip", std::string("PK\x03\x04\x14\0\0\0", 8) + tail},
      {"tar", tar},
      {"Parquet", "PAR1\x15\x04" + tail},
      {"Parquet", "PAR1" + tail + "PAR1"},
      {"Arrow", std::string("ARROW1\0\0", 8) + tail},
      {"Arrow", packed_as<std::uint32_t>({0xFFFFFFFF, 240, 16}) + tail},
      {"Arrow", packed_as<std::uint32_t>({240, 16, 0x000A0000, 0x0006000C}) + tail},
      {"Feather", "FEA1" + tail + "FEA1"},
      {"HDF5", "\x89HDF\r\n\x1a\n" + tail},
      {"HDF5", std::string(512, '\0') + "\x89HDF\r\n\x1a\n" + tail},
      // pickle.dumps([[1, 2], [300, 4]], protocol): 2, 4 and 5
      {"pickle", unhex("80025d7100285d7101284b014b02655d7102284d2c014b0465652e")},
      {"pickle", unhex("80049516000000000000005d94285d94284b014b02655d94284d2c014b0465652e")},
      {"pickle", unhex("80059516000000000000005d94285d94284b014b02655d94284d2c014b0465652e")},
      // 0 and 1
      {"pickle", "(lp0\n(lp1\nI1\naI2\naa(lp2\nI300\naI4\naa."},
      {"pickle", unhex("5d7100285d7101284b014b02655d7102284d2c014b0465652e")},
      {"safetensors", safetensors},
      {"GGUF", "GGUF" + packed_as<std::uint32_t>({3}) + tail},
      {"RAR", "Rar!\x1a\x07\x01" + tail},
      {"Snappy", std::string("\xff\x06\0\0sNaPpY", 10) + tail},
      {"ORC", "ORC" + tail + "\7ORC\x17"},
      {"Avro",
       "Obj\x01\x04\x16"
       "avro.schema" +
           tail},
      // tf.io.TFRecordWriter, ten bytes of 7; lzma.compress(b"a" * 500, lzma.FORMAT_ALONE)
      {"TFRecord", unhex("0a00000000000000aea3bf3a") + tail},
      {"LZMA", unhex("5d00008000ffffffffffffffff0030") + tail},
      {"JPEG", std::string("\xff\xd8\xff\xe0\0\x10JFIF\0", 11) + tail},
      {"ELF", std::string("\x7f"
                          "ELF\2\1\1\0",
                          8) +
                  tail},
      {"GIF", "GIF89a" + tail},
      {"Office", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + tail},
      {"SQLite", std::string("SQLite format 3\0", 16) + tail},
      {"PDF", "%PDF-1.7\n" + tail},
      {"PNG", "\x89PNG\r\n\x1a\n" + tail},
  };
}

TEST_F(FileFormats, FormatsWithASignatureAreNamedWhateverTheyAreTakenFor) {
  for (const Foreign& foreign : foreign_files()) {
    put("x.bin", foreign.bytes + (foreign.bytes.size() % 2 != 0 ? "\n" : ""));
    put("x.txt", foreign.bytes);
    const bool pickled = std::string(foreign.what) == "pickle";  // which ends with its stop
    if (!pickled) {
      EXPECT_THAT(said("tokens:x.bin"), HasSubstr(foreign.what));
      EXPECT_EQ(said("tokens:x.bin:u16"), "") << foreign.what;
    }
    EXPECT_THAT(said("tokens:x.txt"), HasSubstr(foreign.what));
    EXPECT_THAT(said("text:x.txt"), AllOf(HasSubstr(foreign.what), HasSubstr("tokens:FILE:u8")));
    EXPECT_EQ(said("tokens:x.txt:u8"), "") << foreign.what;
  }
  put("x.gz", kGzip);
  put("x.zst", kZstd);
  EXPECT_THAT(said("tokens:x.gz"), HasSubstr("gzip data"));
  EXPECT_THAT(said("tokens:x.zst"), HasSubstr("zstd data"));
  EXPECT_EQ(said("tokens:x.gz:u16"), "");
}

TEST_F(FileFormats, TextsOfSixteenBitsAreNamed) {
  std::u16string english(kEnglish.begin(), kEnglish.end());
  std::u16string russian;
  for (int i = 0; i < 200; ++i) {
    russian += static_cast<char16_t>(i % 6 == 5 ? u' ' : 0x0430 + i * 7 % 32);
  }
  std::u16string chinese, korean;
  for (int i = 0; i < 200; ++i) chinese += static_cast<char16_t>(0x4E00 + i * 37);
  for (int i = 0; i < 400; ++i) {
    korean += static_cast<char16_t>(i % 5 == 4 ? u' ' : 0xAC00 + i * 149 % 11172);
  }
  for (const bool big : {false, true}) {
    const char* order = big ? "big-endian" : "little-endian";
    for (const bool mark : {false, true}) {
      for (const auto& text : {english, russian, korean}) {
        put("x.txt", utf16(text, big, mark));
        EXPECT_THAT(said("text:x.txt"),
                    AllOf(HasSubstr("UTF-16"), HasSubstr(order), HasSubstr("iconv")));
      }
    }
    for (const auto& text : {chinese, std::u16string(u"日本語の短い文です。")}) {
      put("x.txt", utf16(text, big, true));
      EXPECT_THAT(said("text:x.txt"), AllOf(HasSubstr("UTF-16"), HasSubstr(order)));
    }
    std::vector<std::int64_t> points = {0xFEFF};
    for (const char c : kEnglish) points.push_back(c);
    put("x.txt", packed_as<std::uint32_t>(points, big));
    EXPECT_THAT(said("text:x.txt"), HasSubstr("UTF-32"));
  }
  EXPECT_EQ(said("tokens:x.txt:u8"), "");
}

TEST_F(FileFormats, SoundTextsPass) {
  std::string letters;
  for (int i = 0; i < 2000; ++i) letters += {static_cast<char>('a' + i % 26), '\n'};
  std::string bytes;
  const Rng rng{3, Stream::kTestData};
  for (std::uint64_t i = 0; i < 100000; ++i)
    bytes += static_cast<char>(static_cast<unsigned char>(rng.uniform(i) * 256));
  std::string latin1 = kEnglish + "\xe9t\xe9 \xff\xfe";
  for (const std::string& text :
       {kEnglish, std::string("a"), letters, latin1, bytes, std::string(1000, '\0'),
        std::string("\xff\xfe"), std::string("\xef\xbb\xbf") + kEnglish,
        std::string("{\"a\": 1}\n"), std::string("PK\n"), std::string("\x1f\x8b")}) {
    put("x.txt", text);
    EXPECT_EQ(said("text:x.txt"), "") << text.substr(0, 20);
  }
}

TEST_F(FileFormats, MegatronsNamesAskForTheirIndex) {
  const std::string ids16 = packed_as<std::uint16_t>(zipf_ids(10, 3000, 50257));
  put("c_text_document.bin", ids16);
  EXPECT_THAT(
      said("tokens:c_text_document.bin"),
      AllOf(HasSubstr("Megatron"), HasSubstr("c_text_document.idx"), HasSubstr("tokens:FILE:u16")));
  EXPECT_EQ(said("tokens:c_text_document.bin:u16"), "");
  put("c_text_document.bin", packed_as<std::int32_t>(zipf_ids(10, 3000, 50257)));
  EXPECT_THAT(said("tokens:c_text_document.bin"), HasSubstr("32-bit"));
  for (const char* name : {"train.bin", "my_document.bin", "one_sentence.bin"}) {
    put(name, ids16);
    EXPECT_EQ(said(std::string("tokens:") + name), "");
  }
}

TEST_F(FileFormats, AReadingSaysWhatIdsTheBytesAre) {
  put("x.bin", packed_as<std::uint32_t>(zipf_ids(12, 4000, 32000)));
  put("a.gz", kGzip);
  put("a.txt", kLine);
  put("be.npy", npy(">u4", "(2,)", packed_as<std::uint32_t>({1, 2}, true)));
  EXPECT_EQ(reading("tokens:x.bin:u32"), "4,000 ids of u32");
  EXPECT_EQ(reading("tokens:x.bin:u16"), "8,000 ids of u16");
  EXPECT_EQ(reading("tokens:be.npy"), "2 ids of u32, big-endian");
  EXPECT_EQ(reading("text:a.gz"), "42 ids of u8, inflated");
  EXPECT_EQ(reading("text:a.txt"), reading("tokens:a.txt:u8"));
  EXPECT_TRUE(is_same_reading("8 ids of u8", "8 ids of u8, as it lies"));
  EXPECT_TRUE(is_same_reading("", "8 ids of u8"));
  EXPECT_FALSE(is_same_reading("8 ids of u8", "8 ids of u16"));
}

TEST_F(FileFormats, ARunOfTheFirstVersionsReadsAsItDid) {
  constexpr ReadingRules kFirst = ReadingRules::kOfFirst;
  put("a.gz", kGzip);
  put("wide.txt", utf16(std::u16string(kEnglish.begin(), kEnglish.end()), false, true));
  put("x.bin", packed_as<std::uint32_t>(zipf_ids(12, 4000, 32000)));
  put("x.npy", npy("<u2", "(4,)", packed_as<std::uint16_t>({1, 2, 3, 4})));
  put("a.txt", kLine);
  put("sound.bin", packed_as<std::uint16_t>(zipf_ids(12, 4000, 32000)));
  const Dataset gzip = open("text:a.gz", kFirst);
  EXPECT_EQ(gzip.tokens(), static_cast<std::int64_t>(kGzip.size()));
  EXPECT_EQ(open("text:wide.txt", kFirst).tokens(), 2 * (1 + static_cast<int>(kEnglish.size())));
  EXPECT_EQ(open("tokens:x.bin", kFirst).tokens(), 8000);
  EXPECT_EQ(open("tokens:x.npy", kFirst).tokens(), 64 + 4);
  for (const char* source : {"text:a.gz", "text:wide.txt", "tokens:x.bin", "tokens:x.npy"}) {
    EXPECT_THAT(reading(source, kFirst), testing::EndsWith(", as it lies")) << source;
    EXPECT_EQ(rules_of(open(source, kFirst).fingerprint()), kFirst) << source;
  }
  for (const char* source : {"text:a.txt", "tokens:sound.bin"}) {
    EXPECT_EQ(reading(source, kFirst), reading(source)) << source;
    EXPECT_EQ(rules_of(open(source, kFirst).fingerprint()), ReadingRules::kOfToday) << source;
  }
  EXPECT_EQ(rules_of(std::vector<DataFile>{{"a", 1, "b"}}), kFirst);
  EXPECT_THAT(message_of<ConfigError>([&] { (void)open("tokens:x.bin:u32", kFirst); }),
              AllOf(HasSubstr("says u32"), HasSubstr("leave the width out")));
}

// One chance in 2^8 or 2^16 is no evidence: these once were a safetensors file and a pickle.
TEST_F(FileFormats, SoundIdsThatBeginAsASignaturePass) {
  const auto passes = [this](std::vector<std::int64_t> values) {
    put("x.bin", packed_as<std::uint16_t>(values));
    EXPECT_EQ(said("tokens:x.bin"), "");
  };
  std::vector<std::int64_t> braces = {0, 0, 0, 0, 0x227B};
  const std::vector<std::int64_t> more = zipf_ids(13, 3000, 50257);
  braces.insert(braces.end(), more.begin(), more.end());
  passes(braces);
  braces[0] = 40;
  passes(braces);
  std::vector<std::int64_t> pickle(11, 640);
  pickle.push_back(0x2E30);
  passes(pickle);
  std::vector<std::int64_t> padded(60, 0x3030);
  padded.front() = 640;
  padded.back() = 0x2E30;
  passes(padded);
}

// What repeats or goes in pairs is little evidence, however long it is.
TEST_F(FileFormats, DependentIdsAreNoWiderIntegers) {
  const auto passes = [this](const std::vector<std::int64_t>& values, const char* what) {
    put("x.bin", packed_as<std::uint16_t>(values));
    EXPECT_EQ(said("tokens:x.bin"), "") << what;
  };
  for (const std::int64_t period : {2, 6, 8, 10}) {
    for (const std::int64_t odd : {0, 1}) {
      std::vector<std::int64_t> tiled;
      for (std::int64_t i = 0; i < 8000; ++i) {
        tiled.push_back(i % 2 != 0 ? odd * (i % period / 2 + 1) : 100 * (i % period / 2 + 1));
      }
      passes(tiled, "tiled");
    }
  }
  const std::vector<std::int64_t> squares = uniform_ids(14, 4000, 0, 64);
  const std::vector<std::int64_t> pieces = uniform_ids(15, 4000, 0, 13);
  std::vector<std::int64_t> board;
  std::vector<std::int64_t> indexed;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    board.insert(board.end(), {squares[i], pieces[i]});
    indexed.insert(indexed.end(), {static_cast<std::int64_t>(i), pieces[i]});
  }
  passes(board, "squares and pieces");
  passes(indexed, "indices and values");
  put("x.bin", packed_as<std::uint32_t>(uniform_ids(16, 4000, 0, 3)));
  EXPECT_THAT(said("tokens:x.bin"), HasSubstr("32-bit")) << "ids 0, 1 and 2";
}

// head -c 100 /dev/zero | zstd --long=31 --ultra (a window of 2 GiB), and with -D.
TEST_F(FileFormats, ZstdOfAnyWindowIsReadAndADictionaryAskedFor) {
  // Magic, a descriptor without a size, window 2^31, one raw block, the last: RFC 8878.
  const std::string block =
      packed_as<std::uint32_t>({static_cast<std::int64_t>(kLine.size()) << 3 | 1});
  put("long.zst", unhex("28b52ffd00a8") + block.substr(0, 3) + kLine);
  EXPECT_EQ(ids("text:long.zst").size(), kLine.size());
  // The same with a dictionary of id 7.
  put("dict.zst", unhex("28b52ffd014007") + block.substr(0, 3) + kLine);
  EXPECT_THAT(said("text:dict.zst"),
              AllOf(HasSubstr("needs a dictionary"), testing::Not(HasSubstr("damaged"))));
}

TEST_F(FileFormats, InflatedTextsAreBounded) {
  EXPECT_THAT(message_of<SystemError>([] {
                (void)inflated(std::as_bytes(std::span(kGzip)), Compression::kGzip, "x", 41);
              }),
              HasSubstr("more than 41 bytes of text"));
  EXPECT_EQ(inflated(std::as_bytes(std::span(kGzip)), Compression::kGzip, "x", 42).size(), 42U);
}

TEST_F(FileFormats, FloatingPointIdsAreNamedAsWhatTheyAre) {
  for (const std::int64_t vocab : {100, 300, 32000, 128000}) {
    const std::vector<std::int64_t> values = zipf_ids(17, 4000, vocab);
    put("f32", packed_as<float>(values));
    put("f64", packed_as<double>(values));
    EXPECT_THAT(said("tokens:f32"),
                AllOf(HasSubstr("32-bit floating-point"), HasSubstr(".astype(numpy.uint32)")))
        << vocab;
    EXPECT_THAT(said("tokens:f64"), HasSubstr("64-bit floating-point")) << vocab;
    put("f32", packed_as<float>(values, true));
    put("f64", packed_as<double>(values, true));
    EXPECT_THAT(said("tokens:f32"), HasSubstr("big-endian 32-bit floating-point")) << vocab;
    EXPECT_THAT(said("tokens:f64"), HasSubstr("big-endian 64-bit floating-point")) << vocab;
  }
}

// Pairs of ids of which one is constant, 72 here, are whole numbers as big-endian floats.
TEST_F(FileFormats, PairsOfIdsWithAConstantAreNoFloatingPointNumbers) {
  std::vector<std::int64_t> pairs;
  for (const std::int64_t id : zipf_ids(17, 4000, 200)) {
    pairs.insert(pairs.end(), {72, id});
  }
  put("pairs", packed_as<std::uint16_t>(pairs));
  EXPECT_THAT(said("tokens:pairs"), testing::Not(HasSubstr("floating-point")));
}

TEST_F(FileFormats, ATextIsOneInSpiteOfAFewOddBytes) {
  std::string english;
  for (int i = 0; i < 20; ++i)
    english += kEnglish + std::string(static_cast<std::size_t>(i % 2), ' ');
  for (const char odd : {'\xe9', '\0', '\x0b'}) {
    std::string text = english;
    text[1000] = odd;
    put("x.bin", text);
    EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like text")) << static_cast<int>(odd);
  }
  std::string latin = english;
  for (std::size_t i = 0; i < latin.size(); i += 23) latin[i] = '\xe9';
  put("x.bin", latin);
  EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like text")) << "Latin-1";
  std::string gb2312;
  for (const std::int64_t i : uniform_ids(18, 6000, 0, 72 * 94)) {
    gb2312 += {static_cast<char>(0xB0 + i / 94), static_cast<char>(0xA1 + i % 94)};
    if (i % 10 == 0) gb2312 += ", ";
  }
  put("x.bin", gb2312);
  EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like text")) << "GB 2312";
}

TEST_F(FileFormats, TextsOfFewCharactersAreTexts) {
  for (const std::string& letters : {std::string("ACGT"), std::string("ACDEFGHIKLMNPQRSTVWY")}) {
    std::string text;
    for (const std::int64_t at :
         uniform_ids(19, 6001, 0, static_cast<std::int64_t>(letters.size()))) {
      text += letters[static_cast<std::size_t>(at)];
      if (text.size() % 61 == 60) text += '\n';
    }
    text.resize(text.size() / 2 * 2);
    put("x.bin", text);
    EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like text")) << letters;
  }
}

// Letters beyond ASCII of one byte (Latin-1, KOI8-R, code page 866), and short texts of UTF-8.
TEST_F(FileFormats, TextsOfOtherEncodingsAreTexts) {
  const std::string german =
      "Die Stra\xdf"
      "e f\xfchrt \xfc"
      "ber die Br\xfc"
      "cke zum gro\xdf"
      "en Schlo\xdf, wo K\xf6nige in sch\xf6nen G\xe4rten "
      "sa\xdf"
      "en. M\xfcller a\xdf \xc4pfel und \xd6l; heute regnet es (1, 2, 42)! Fr\xfch fragt "
      "B\xe4rbel: \"Wald?\" Xaver z\xf6gert. ";
  put("x.bin", german + german);
  EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like text")) << "Latin-1";
  for (const std::int64_t letters : {0xC0, 0x80}) {  // KOI8-R, code page 866
    std::string russian;
    for (const std::int64_t i : uniform_ids(20, 4000, 0, 40)) {
      russian += i < 32   ? static_cast<char>(letters + i)
                 : i < 38 ? ' '
                          : static_cast<char>(',' + i % 2 * 2);
    }
    put("x.bin", russian);
    EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like text")) << letters;
  }
  std::string arabic;
  for (const std::int64_t i : uniform_ids(21, 3000, 0, 34)) {
    arabic += i < 30 ? std::string("\xd9") + static_cast<char>(0x80 + i) : std::string(" ");
  }
  arabic.resize(arabic.size() / 2 * 2);
  put("x.bin", arabic);
  EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like text")) << "Arabic";
}

TEST_F(FileFormats, WideTextsAreNamedInSpiteOfAFewOddCharacters) {
  std::u16string english(kEnglish.begin(), kEnglish.end());
  const auto letters = [](char16_t from, int count) {
    std::u16string text;
    for (int i = 0; i < 400; ++i) {
      text += i % 6 == 5 ? u' ' : static_cast<char16_t>(from + i * 7 % count);
    }
    return text;
  };
  std::u16string chinese;
  for (const std::int64_t at : uniform_ids(20, 2000, 0x4E00, 0x9F00)) {
    chinese += static_cast<char16_t>(at);
    if (at % 20 == 0) chinese += u"\u3002\n";
  }
  std::u16string odd = english;
  odd.insert(50, u"\u2122");
  std::u16string emoji = english;
  emoji.insert(50, u"\xD83D\xDE00");
  std::u16string replaced = english;
  replaced.insert(50, u"\xFFFD\xE000");
  for (const bool big : {false, true}) {
    for (const std::u16string& text :
         {odd, emoji, replaced, letters(0x0905, 40), letters(0x0E01, 40), chinese}) {
      put("x.txt", utf16(text, big, false));
      EXPECT_THAT(said("text:x.txt"), HasSubstr("UTF-16"))
          << big << " " << static_cast<int>(text[0]);
      put("x.txt", utf16(text, big, true));
      EXPECT_THAT(said("text:x.txt"), HasSubstr("UTF-16"))
          << big << " marked " << static_cast<int>(text[0]);
    }
  }
  std::string shift_jis;
  for (const std::int64_t at : uniform_ids(21, 4000, 0, 23 * 60)) {
    shift_jis += {static_cast<char>(0x88 + at % 23), static_cast<char>(0x40 + at / 23)};
  }
  put("x.txt", shift_jis);
  EXPECT_EQ(said("text:x.txt"), "");
}

TEST_F(FileFormats, AFewValuesUnlikeTheOthersHideNoWidth) {
  std::vector<std::int64_t> values = zipf_ids(22, 8000, 32000);
  values[0] = 0x12345678;  // an unknown header
  put("x.bin", packed_as<std::uint32_t>(values));
  EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like 32-bit integers"));
  put("x.bin", packed_as<std::uint32_t>(values, true));
  EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like big-endian 32-bit integers"));
  values[0] = 1;
  for (std::size_t i = 0; i < values.size(); i += 2000) values[i] = 0x7FFFFFFF;
  put("x.bin", packed_as<std::uint32_t>(values));
  EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like 32-bit integers"));
  std::vector<std::int64_t> padded = uniform_ids(23, 8000, 0, 32000);
  for (std::size_t i = 7000; i < 7008; ++i) padded[i] = 65535;
  put("x.bin", packed_as<std::uint16_t>(padded, true));
  EXPECT_THAT(said("tokens:x.bin"), HasSubstr("looks like big-endian 16-bit integers"));
}

TEST_F(FileFormats, AllTextsOfASourceTogetherAreBounded) {
  put("a.gz", kGzip);
  put("b.gz", kGzip);
  DataConfig config;
  config.source = "text:*.gz";
  const auto open_with = [&](std::int64_t most) {
    return Dataset::open(storage_, config, directory_.path(), ReadingRules::kOfToday, most)
        .tokens();
  };
  EXPECT_EQ(open_with(84), 84);
  EXPECT_THAT(message_of<SystemError>([&] { (void)open_with(83); }),
              AllOf(HasSubstr("b.gz"), HasSubstr("more than 41 bytes")));
}

// The chances of all guesses add up to less than one in a thousand million files.
TEST_F(FileFormats, RandomBytesAreNoFormat) {
  const Rng rng{11, Stream::kTestData};
  std::vector<std::byte> bytes(64);
  for (std::uint64_t file = 0; file < 20000; ++file) {
    for (std::size_t i = 0; i < bytes.size(); i += 16) {
      const auto words = rng.words(file, static_cast<std::uint32_t>(i));
      std::memcpy(bytes.data() + i, words.data(), 16);
    }
    ASSERT_FALSE(signed_format(bytes).has_value()) << file;
    ASSERT_FALSE(not_u16_tokens(bytes).has_value()) << file;
    ASSERT_FALSE(wide_text(bytes).has_value()) << file;
  }
}

}  // namespace
}  // namespace isthmus::this_file
