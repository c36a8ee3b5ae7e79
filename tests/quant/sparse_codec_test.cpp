// SPDX-License-Identifier: Apache-2.0
// Which values the sparse codecs keep, how indices travel, and the cosine transform against its
// definition in double.
#include "quant/codecs/sparse_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numbers>
#include <numeric>
#include <set>

#include "isthmus/codec.h"
#include "quant/codec_values.h"
#include "quant/codecs/cosine_transform.h"
#include "quant/codecs/index_coding.h"
#include "quant/cpu/codec_kernels.h"

namespace isthmus::this_file {
namespace {

std::vector<float> round_trip(const char* codec, const std::vector<float>& x,
                              const EncodeKey& key = {}) {
  std::vector<float> y(x.size());
  const auto made = make_codec(codec);
  const auto result = decode(*made, encode(*made, x, key).bytes, y);
  EXPECT_TRUE(result) << result.error().what;
  return y;
}

// The k largest by a full sort, ties by lowest index.
std::vector<std::uint16_t> largest_by_sort(const std::vector<float>& x, std::size_t k) {
  std::vector<std::uint16_t> order(x.size());
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::uint16_t a, std::uint16_t b) {
    return std::fabs(x[a]) > std::fabs(x[b]);
  });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

class SelectTopTest : public ::testing::TestWithParam<const CodecKernels*> {};

TEST_P(SelectTopTest, FindsTheLargestTiesByLowestIndex) {
  std::vector<std::size_t> lengths = {1000, 4095, 4096};
  for (std::size_t n = 1; n <= 257; ++n) lengths.push_back(n);
  for (const std::size_t n : lengths) {
    auto inputs = testing_support::hard_vectors(n);
    std::vector<float> few(n);  // fewer nonzero ones than are asked for, and many ties
    for (std::size_t i = 0; i < n; ++i) few[i] = i % 37 == 5 ? 1.0f : i % 11 == 3 ? -2.0f : 0.0f;
    inputs.push_back({"few", few});
    for (const auto& input : inputs) {
      for (const std::size_t k : {std::size_t{1}, n / 32 + 1, n / 7 + 1, n / 2 + 1, n}) {
        if (k > n) continue;
        const std::vector<float> unaligned = [&] {
          std::vector<float> v(n % 16, 0.0f);
          v.insert(v.end(), input.x.begin(), input.x.end());
          return v;
        }();
        std::vector<std::uint16_t> found(k + 1, 0xABCD);
        GetParam()->select_top(unaligned.data() + n % 16, n, k, found.data());
        ASSERT_EQ(found.back(), 0xABCD);
        found.pop_back();
        ASSERT_EQ(found, largest_by_sort(input.x, k))
            << input.name << ", n = " << n << ", k = " << k;
      }
    }
  }
}

TEST_P(SelectTopTest, ANanOrInfinityIsAlwaysAmongThem) {
  for (std::size_t at = 0; at < 4096; at += 97) {
    std::vector<float> x = testing_support::normal_vector(4096, 5, 1e30);
    x[at] = at % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                        : -std::numeric_limits<float>::infinity();
    std::uint16_t found = 0;
    GetParam()->select_top(x.data(), x.size(), 1, &found);
    EXPECT_EQ(found, at);
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, SelectTopTest,
                         ::testing::ValuesIn(available_codec_kernels().begin(),
                                             available_codec_kernels().end()),
                         [](const auto& test) { return std::string(test.param->isa); });

TEST(Topk, KeepsTheLargestBitForBitAndDropsTheRest) {
  const std::vector<float> x = testing_support::normal_vector(5000);
  const std::vector<float> y = round_trip("topk:100", x);
  const std::vector<float> first(x.begin(), x.begin() + 4096);
  const std::vector<std::uint16_t> kept = largest_by_sort(first, 100);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool is_kept = std::binary_search(kept.begin(), kept.end(), i);
    ASSERT_EQ(y[i], is_kept ? x[i] : 0.0f) << i;
  }
  // 904 values keep ceil(100 * 904 / 4096) = 23.
  EXPECT_EQ(904 - std::count(y.begin() + 4096, y.end(), 0.0f), 23);
}

// Infinities of both signs make coefficients that are no numbers, and a NaN makes all of them so.
TEST(DctTopk, EveryNanOfACoefficientHasTheSameBits) {
  constexpr std::size_t kKept = 64;
  const auto codec = make_codec("dct-topk:64:value=fp32");
  for (const std::uint32_t bits : {0xFF80'0000u, 0x7FC0'0000u, 0x7FFF'FFFFu, 0xFFC0'0001u}) {
    for (const std::size_t n : {kTileValues, std::size_t{700}}) {
      std::vector<float> x = testing_support::normal_vector(n);
      x[5] = std::numeric_limits<float>::infinity();
      x[n - 1] = x[9] = std::bit_cast<float>(bits);
      std::vector<std::byte> bytes(codec->encoded_bytes(n));
      codec->encode(x, bytes);
      std::size_t nans = 0;
      for (std::size_t i = 0; i < std::min(kKept, (kKept * n + 4095) / 4096); ++i) {
        std::uint32_t kept = 0;
        std::memcpy(&kept, bytes.data() + 4 * i, sizeof kept);
        if ((kept & 0x7FFF'FFFFu) <= 0x7F80'0000u) continue;
        ++nans;
        EXPECT_EQ(kept, 0x7FC0'0000u) << bits;
      }
      EXPECT_GT(nans, 0u);
    }
  }
}

TEST(Topk, SignValuesAreTheMeanMagnitude) {
  EXPECT_EQ(round_trip("topk:2048:value=sign", {1, -5, 0, 3}), (std::vector<float>{0, -4, 0, 4}));
}

// The quantiser written down once more, from its description: 4 bins of 6 sigma / 4, rounded and
// clamped about the mean, each decoded as the mean of its values.
TEST(Topk, TwoBitValuesAreTheMeansOfTheirBins) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<float> x = testing_support::normal_vector(4096, seed, 1e-4);
    if (seed > 10) {
      for (float& value : x) value = std::fabs(value) + 1e-4f;  // its own mean is far from zero
    }
    const std::vector<std::uint16_t> kept = largest_by_sort(x, 64);
    double mean = 0;
    for (const std::uint16_t i : kept) mean += static_cast<double>(x[i]) / 64;
    double squares = 0;
    for (const std::uint16_t i : kept) squares += std::pow(static_cast<double>(x[i]) - mean, 2);
    const double width = 6 * std::sqrt(squares / 63) / 4;
    std::array<double, 4> sum{};
    std::array<double, 4> count{};
    std::vector<std::size_t> bin(x.size(), 4);
    for (const std::uint16_t i : kept) {
      const double q = std::nearbyint((static_cast<double>(x[i]) - mean) / width) + 2;
      bin[i] = static_cast<std::size_t>(std::clamp(q, 0.0, 3.0));
      sum[bin[i]] += static_cast<double>(x[i]);
      count[bin[i]] += 1;
    }
    const std::vector<float> y = round_trip("topk:64:value=2bit", x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = bin[i] == 4 ? 0 : sum[bin[i]] / count[bin[i]];
      // bf16 keeps eight bits.
      ASSERT_NEAR(y[i], expected, std::fabs(expected) / 256) << "seed " << seed << ", " << i;
    }
  }
}

// 64 (12 + 2) bits a tile as published, and 64 more for the four means.
TEST(Topk, TwoBitTilesTakeThePublishedBitsAndTheTable) {
  const auto codec = make_codec("topk:64:value=2bit:ef");
  EXPECT_EQ(8 * codec->encoded_bytes(4096), 896u + 64u);
  EXPECT_EQ(codec->encoded_bytes(0), 0u);
  EXPECT_EQ(codec->encoded_bytes(1), 8u + 1u + 2u);
  EXPECT_EQ(encoded_bytes(*codec, 10 * 4096), 10u * 120u);
}

TEST(Topk, TwoBitTablesAndBitsThatNoEncoderMakesAreRefused) {
  const auto codec = make_codec("topk:64:value=2bit");
  const std::vector<float> x = testing_support::normal_vector(200);  // keeps 4: one byte of codes
  std::vector<std::byte> good = encode(*codec, x).bytes;
  std::vector<float> y(x.size());
  ASSERT_TRUE(decode(*codec, good, y));
  for (std::size_t mean = 0; mean < 4; ++mean) {
    std::vector<std::byte> bytes = good;
    bytes[2 * mean + 1] = std::byte{0x7F};
    bytes[2 * mean] = std::byte{0x80};
    EXPECT_FALSE(decode(*codec, bytes, y)) << "an infinite mean " << mean;
  }
  const std::vector<float> two(65);  // keeps 2: the upper half of the byte is unused
  std::vector<std::byte> bytes = encode(*codec, two).bytes;
  ASSERT_EQ(bytes.size(), 8u + 1u + 3u);
  bytes[8] |= std::byte{0x10};
  EXPECT_FALSE(decode(*codec, bytes, std::span(y).first(two.size())));
}

TEST(IndexCoding, EverySetComesBack) {
  const Rng rng(3, Stream::kTestData);
  std::uint64_t draw = 0;
  for (const IndexCoding coding : {IndexCoding::kPacked12, IndexCoding::kRice}) {
    for (const std::size_t n : {1u, 2u, 17u, 300u, 4095u, 4096u}) {
      for (const std::size_t k : {std::size_t{0}, std::size_t{1}, n / 32, n / 3, n - 1, n}) {
        for (int shape = 0; shape < 4; ++shape) {
          std::set<std::uint16_t> chosen;
          for (std::size_t i = 0; i < k && shape == 0; ++i) {  // at the end: the longest unary part
            chosen.insert(static_cast<std::uint16_t>(n - 1 - i));
          }
          for (std::size_t i = 0; i < k && shape == 1; ++i) {
            chosen.insert(static_cast<std::uint16_t>(i));
          }
          while (chosen.size() < k) {
            chosen.insert(static_cast<std::uint16_t>(rng.below(n, draw++)));
          }
          const std::vector<std::uint16_t> indices(chosen.begin(), chosen.end());
          std::vector<std::byte> bytes(index_bytes(coding, n, k));
          write_indices(coding, n, indices, bytes);
          std::vector<std::uint16_t> back(k);
          ASSERT_TRUE(read_indices(coding, n, bytes, back)) << "n = " << n << ", k = " << k;
          ASSERT_EQ(back, indices) << "n = " << n << ", k = " << k;
        }
      }
    }
  }
}

// Bits an index: the worst case that is sent is within 8 % of the mean the literature gives.
TEST(IndexCoding, RiceStaysNearItsPublishedMean) {
  EXPECT_EQ(rice_parameter(4096, 128), 4u);
  for (const auto& [k, mean] :
       {std::pair<std::size_t, double>{32, 8.53}, {64, 7.53}, {128, 6.51}, {256, 5.48}}) {
    const double bits = 8.0 * static_cast<double>(index_bytes(IndexCoding::kRice, 4096, k)) /
                        static_cast<double>(k);
    EXPECT_GE(bits, mean) << k;
    EXPECT_LE(bits, 1.09 * mean) << k;
  }
}

TEST(IndexCoding, BytesThatAreNoAscendingIndicesAreRefused) {
  std::vector<std::byte> bytes(3);
  std::vector<std::uint16_t> two(2);
  write_indices(IndexCoding::kPacked12, 4096, std::vector<std::uint16_t>{5, 9}, bytes);
  EXPECT_TRUE(read_indices(IndexCoding::kPacked12, 4096, bytes, two));
  EXPECT_FALSE(read_indices(IndexCoding::kPacked12, 9, bytes, two));  // 9 is not below 9
  EXPECT_FALSE(read_indices(IndexCoding::kPacked12, 4096, std::vector<std::byte>(3), two));
  std::vector<std::byte> rice(index_bytes(IndexCoding::kRice, 100, 2), std::byte{0xFF});
  EXPECT_FALSE(read_indices(IndexCoding::kRice, 100, rice, two));
  EXPECT_FALSE(read_indices(IndexCoding::kRice, 100, {}, two));
}

TEST(Randk, AllWorkersSendTheSamePlacesOfARound) {
  const std::vector<float> x(10000, 1.0f);
  const std::vector<float> a = round_trip("randk", x, {.seed = 9, .worker = 0});
  EXPECT_EQ(a, round_trip("randk", x, {.seed = 9, .worker = 1}));
  EXPECT_NE(a, round_trip("randk", x, {.seed = 10, .worker = 0}));
  EXPECT_FALSE(std::equal(a.begin(), a.begin() + 4096, a.begin() + 4096));  // tiles differ
  EXPECT_EQ(std::count(a.begin(), a.begin() + 4096, 1.0f), 128);
}

TEST(Randk, EveryPlaceIsAsLikelyAsAnother) {
  constexpr std::size_t kValues = 64;
  constexpr std::uint64_t kRounds = 20000;
  std::vector<double> count(kValues);
  const std::vector<float> x(kValues, 1.0f);
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::vector<float> y = round_trip("randk:1024", x, {.seed = round});
    for (std::size_t i = 0; i < kValues; ++i) count[i] += static_cast<double>(y[i]);
  }
  const double deviation = std::sqrt(kRounds * .25 * .75);
  for (const double c : count) EXPECT_NEAR(c, kRounds * .25, 5 * deviation);
}

TEST(CosineTransform, IsTheDefinition) {
  constexpr std::size_t kSide = 64;
  const std::vector<float> x = testing_support::normal_vector(kTileValues);
  std::vector<float> y(kTileValues);
  cosine_transform(x, y);
  const auto basis = [](std::size_t u, std::size_t i) {
    return std::sqrt((u == 0 ? 1.0 : 2.0) / kSide) *
           std::cos(std::numbers::pi * static_cast<double>((2 * i + 1) * u) / (2.0 * kSide));
  };
  for (std::size_t probe = 0; probe < 200; ++probe) {
    const std::size_t u = probe * 7 % kSide;
    const std::size_t v = probe * 13 % kSide;
    double sum = 0;
    for (std::size_t r = 0; r < kSide; ++r) {
      for (std::size_t c = 0; c < kSide; ++c) {
        sum += basis(u, r) * basis(v, c) * static_cast<double>(x[r * kSide + c]);
      }
    }
    EXPECT_NEAR(y[u * kSide + v] * 64, sum, 2e-5) << u << ", " << v;
  }
}

TEST(CosineTransform, InverseGivesTheValuesBackAtEveryLength) {
  for (const std::size_t n : {1u, 63u, 64u, 65u, 200u, 4095u, 4096u}) {
    const std::vector<float> x = testing_support::normal_vector(n);
    std::vector<float> y(n), z(n);
    cosine_transform(x, y);
    inverse_cosine_transform(y, z);
    for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(z[i], x[i], 1e-5) << n;
  }
}

// A smooth signal has few coefficients: that is what the codec is for.
TEST(DctTopk, KeepsASmoothTileInAFewCoefficients) {
  std::vector<float> x(kTileValues);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(
        std::cos(std::numbers::pi * (2.0 * static_cast<double>(i % 64) + 1) * 3 / 128));
  }
  const std::vector<float> y = round_trip("dct-topk:1", x);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 1e-4) << i;
}

}  // namespace
}  // namespace isthmus::this_file
