// SPDX-License-Identifier: Apache-2.0
#include "core/base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/base/storage.h"
#include "core/temporary_directory.h"

namespace isthmus::this_file {
namespace {

std::vector<std::byte> random_bytes(std::size_t n) {
  const Rng rng{1, Stream::kTestData};
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(rng.words(i)[0] & 0xff);
  return bytes;
}

// The definition: one bit at a time.
std::uint32_t naive_crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

TEST(Crc32c, GivesTheCheckValueOfTheStandard) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32c, EqualsTheBitwiseDefinitionAtEveryLengthAndOffset) {
  const std::vector<std::byte> bytes = random_bytes(7000);
  for (const std::size_t length :
       {0, 1, 3, 7, 8, 9, 63, 64, 65, 1023, 1024, 1025, 1279, 1280, 3071, 3072, 3073, 6145, 6990}) {
    for (std::size_t offset = 0; offset < 9; ++offset) {
      const auto part = std::span(bytes).subspan(offset, length);
      ASSERT_EQ(crc32c(part), naive_crc32c(part)) << "length " << length << " offset " << offset;
      ASSERT_EQ(detail::crc32c_portable(part, 0), naive_crc32c(part)) << "length " << length;
      if (detail::crc32c_has_hardware()) {
        ASSERT_EQ(detail::crc32c_lanes(part, 0), naive_crc32c(part)) << "length " << length;
      }
    }
  }
}

TEST(Crc32c, ContinuesFromAnEarlierPart) {
  const std::vector<std::byte> bytes = random_bytes(5000);
  const auto all = std::span(bytes);
  for (const std::size_t cut : {0U, 1U, 100U, 4097U, 5000U}) {
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all)) << cut;
    EXPECT_EQ(detail::crc32c_portable(all.subspan(cut), crc32c(all.first(cut))), crc32c(all))
        << cut;
  }
}

TEST(Crc32c, OfACopyIsThatOfTheBytes) {
  for (const std::size_t length : {0u, 1u, 3071u, 12288u, 12289u, 50000u}) {
    const std::vector<std::byte> from = random_bytes(length);
    std::vector<std::byte> to(length);
    EXPECT_EQ(crc32c_copy(from, to, 7), crc32c(from, 7)) << length;
    EXPECT_EQ(to, from) << length;
  }
}

TEST(Sha256, GivesTheFipsExamplesWholeAndInParts) {
  EXPECT_EQ(sha256_hex(as_bytes("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 parts;
  parts.update(as_bytes("a"));
  parts.update(as_bytes("bc"));
  EXPECT_EQ(parts.hex(), sha256_hex(as_bytes("abc")));
}

// What XXH3_128bits of xxHash 0.8.1 gives for the first bytes of a sequence, without a choice of
// vectors: lengths around the borders of its loops, in one piece and in two. So all machines agree,
// whatever vectors they have.
TEST(Xxh3, OfEveryLengthIsThatOfThePlainLoop) {
  std::vector<std::byte> bytes(70'001);
  std::uint32_t x = 1;
  for (std::byte& byte : bytes) {
    x = x * 1'664'525 + 1'013'904'223;
    byte = static_cast<std::byte>(x >> 24);
  }
  const std::vector<std::pair<std::size_t, std::string>> plain = {
      {1, "beff62be44bc9be4429e81bc6744101c"},     {16, "f8ae1a6f144fb00b4c6929dc65a535a0"},
      {17, "0ad716e7cfed9dc843287186cdfec85d"},    {128, "2b83749a25627c556772960c7e09e15b"},
      {129, "d2c5fdf14399d768d15020c0444d308f"},   {240, "b2c3c2aa029b2279e16f608e11e76335"},
      {241, "e75e577a31d24834d6afac6f8fa85b01"},   {256, "5f3bd3b68315e0249e6593bab96413da"},
      {257, "bd1fb14b2159e83dc7f456fff4eaca08"},   {1024, "1ac8856c8b289d9abb9f0c3761cdfd54"},
      {1025, "15379a00bb4cec9895edccc1adc4d895"},  {16384, "fa748a12f2cfe7e70b9eba15ef84a59d"},
      {65537, "bbb4683662baea6849235290459c83cc"}, {70001, "1e210a1626f5ee1b7f6252bdde984aaf"},
  };
  for (const auto& [length, hex] : plain) {
    const auto part = std::span(bytes).first(length);
    EXPECT_EQ(xxh3_128(part).hex(), hex) << length;
    Xxh3Stream stream;
    stream.update(part.first(length / 3));
    stream.update(part.subspan(length / 3));
    EXPECT_EQ(stream.digest().hex(), hex) << length;
  }
}

TEST(Xxh3, GivesThePublishedDigestOfNothingAndStreamsAlike) {
  // XXH3_128bits of no bytes with seed 0, from the xxHash test vectors.
  EXPECT_EQ(xxh3_128({}).hex(), "99aa06d3014798d86001c324468d497f");
  const std::vector<std::byte> bytes = random_bytes(3000);
  Xxh3Stream stream;
  stream.update(std::span(bytes).first(1234));
  stream.update(std::span(bytes).subspan(1234));
  EXPECT_EQ(stream.digest(), xxh3_128(bytes));
  std::vector<std::byte> changed = bytes;
  changed[1500] ^= std::byte{1};
  EXPECT_NE(xxh3_128(changed), xxh3_128(bytes));
}

}  // namespace
}  // namespace isthmus::this_file
