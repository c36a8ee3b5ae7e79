// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/lossless.h"

#include <gmock/gmock.h>

#include <cstring>

#include "quant/codec_values.h"

namespace isthmus::this_file {
namespace {

using ::testing::HasSubstr;

std::string decompress_error(std::span<const std::byte> bytes, std::size_t n) {
  std::vector<float> out(n);
  const auto result = decompress_floats(bytes, out);
  return result ? "accepted" : result.error().what;
}
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

TEST(Lossless, EveryBitComesBack) {
  for (const std::size_t n : {0u, 1u, 5u, 4096u, 262144u, 262145u, 600000u}) {
    for (const std::vector<float>& x :
         {testing_support::bit_vector(n), testing_support::normal_vector(n),
          std::vector<float>(n, 0.5f)}) {
      const std::vector<std::byte> bytes = compress_floats(x);
      ASSERT_EQ(compressed_values(bytes).value(), n);
      std::vector<float> y(n);
      ASSERT_TRUE(decompress_floats(bytes, y)) << n;
      ASSERT_TRUE(same_bits(x, y)) << n;
      // What does not compress costs a length a plane.
      EXPECT_LE(bytes.size(), 12 + 4 * n + 16 * (n / 262144 + 1));
    }
  }
}

// Values that came from bf16 have two empty planes, and an exponent plane of about 3 bits.
TEST(Lossless, Bf16ValuesHalveAndThenSome) {
  std::vector<float> x = testing_support::normal_vector(1 << 20, 3, .02);
  const auto bf16 = make_codec("bf16");
  ASSERT_TRUE(decode(*bf16, encode(*bf16, x).bytes, x));
  const double bits = 8.0 * static_cast<double>(compress_floats(x).size()) / (1 << 20);
  EXPECT_LT(bits, 11.3);
  EXPECT_GT(bits, 10.3);  // the entropy of bf16 codes of normal values is 10.6
}

TEST(Lossless, DamagedBytesAreRefused) {
  const std::vector<float> x(5000, 1.25f);
  const std::vector<std::byte> good = compress_floats(x);
  EXPECT_EQ(decompress_error(good, 5000), "accepted");
  EXPECT_THAT(decompress_error(good, 4999), HasSubstr("hold 5000 values, 4999 are wanted"));
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(decompress_error(std::span(good).first(size), 5000), "accepted") << size;
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THAT(decompress_error(longer, 5000), HasSubstr("left over"));
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    (void)decompress_error(bytes, 5000);  // must not crash; a checksum is the frame's business
  }
}

}  // namespace
}  // namespace isthmus::this_file
