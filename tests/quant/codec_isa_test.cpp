// SPDX-License-Identifier: Apache-2.0
// Every instruction set of this machine against the portable loops, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "isthmus/codec.h"
#include "quant/codec_kernels.h"
#include "quant/codec_math.h"
#include "quant/codec_values.h"

namespace isthmus {
namespace {

using testing::NamedValues;

constexpr std::byte kCanary{0xA5};

// Bytes or floats as raw bits, so that NaNs compare.
template <typename T>
std::vector<std::byte> raw(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<NamedValues> inputs(std::size_t n) {
  std::vector<NamedValues> all = testing::hard_vectors(n);
  all.push_back({"any bits", testing::bit_vector(n, 7)});
  return all;
}

class CodecKernelsTest : public ::testing::TestWithParam<const CodecKernels*> {
 protected:
  const CodecKernels& fast() const { return *GetParam(); }
  const CodecKernels& reference() const { return kPortableCodecKernels; }
};

using Encode = void (*)(const float*, std::size_t, std::byte*);
using Decode = void (*)(const std::byte*, std::size_t, float*);

// Unaligned bytes, and a canary behind them.
std::vector<std::byte> encoded(Encode encode, const std::vector<float>& x, std::size_t size) {
  std::vector<std::byte> bytes(size + 2, kCanary);
  encode(x.data(), x.size(), bytes.data() + 1);
  EXPECT_EQ(bytes.back(), kCanary) << "wrote past the end, n = " << x.size();
  return {bytes.begin() + 1, bytes.end() - 1};
}
std::vector<std::byte> decoded(Decode decode, const std::vector<std::byte>& bytes, std::size_t n,
                               float start) {
  std::vector<float> out(n + 1, start);
  std::vector<std::byte> shifted(bytes.size() + 1);
  std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
  decode(shifted.data() + 1, n, out.data());
  EXPECT_EQ(out.back(), start) << "wrote past the end, n = " << n;
  return raw(out);
}

void compare_half(Encode fast_encode, Encode encode, Decode fast_decode, Decode decode,
                  Decode fast_add, Decode add, const NamedValues& input) {
  const std::size_t n = input.x.size();
  const auto bytes = encoded(encode, input.x, 2 * n);
  ASSERT_EQ(encoded(fast_encode, input.x, 2 * n), bytes) << input.name << ", n = " << n;
  ASSERT_EQ(decoded(fast_decode, bytes, n, 0), decoded(decode, bytes, n, 0))
      << input.name << ", n = " << n;
  ASSERT_EQ(decoded(fast_add, bytes, n, 0.1f), decoded(add, bytes, n, 0.1f))
      << input.name << ", n = " << n;
}

TEST_P(CodecKernelsTest, HalvesMatchThePortableLoopsAtEveryLength) {
  for (std::size_t n = 0; n <= 257; ++n) {
    for (const NamedValues& input : inputs(n)) {
      compare_half(fast().bf16_encode, reference().bf16_encode, fast().bf16_decode,
                   reference().bf16_decode, fast().bf16_decode_add, reference().bf16_decode_add,
                   input);
      compare_half(fast().fp16_encode, reference().fp16_encode, fast().fp16_decode,
                   reference().fp16_decode, fast().fp16_decode_add, reference().fp16_decode_add,
                   input);
    }
  }
}

TEST_P(CodecKernelsTest, HalvesDecodeEveryCodeAsThePortableLoopsDo) {
  std::vector<std::byte> bytes(2 * kTileValues);
  for (std::size_t first = 0; first < 0x1'0000; first += kTileValues) {
    for (std::size_t i = 0; i < kTileValues; ++i) {
      const auto code = static_cast<std::uint16_t>(first + i);
      std::memcpy(bytes.data() + 2 * i, &code, sizeof code);
    }
    ASSERT_EQ(decoded(fast().bf16_decode, bytes, kTileValues, 0),
              decoded(reference().bf16_decode, bytes, kTileValues, 0));
    ASSERT_EQ(decoded(fast().fp16_decode, bytes, kTileValues, 0),
              decoded(reference().fp16_decode, bytes, kTileValues, 0));
  }
}

TEST_P(CodecKernelsTest, Int8MatchesThePortableLoopsAtEveryLengthAndBlock) {
  for (const std::size_t block : {1u, 2u, 8u, 16u, 32u, 64u, 256u, 4096u}) {
    const auto encoder = [block](const CodecKernels& kernels, const std::vector<float>& x) {
      const std::size_t size = sizeof(float) * ((x.size() + block - 1) / block) + x.size();
      std::vector<std::byte> bytes(size + 1, kCanary);
      kernels.int8_encode(x.data(), x.size(), block, bytes.data());
      EXPECT_EQ(bytes.back(), kCanary) << "wrote past the end, n = " << x.size();
      bytes.pop_back();
      return bytes;
    };
    for (const std::size_t n : {0u, 1u, 7u, 31u, 33u, 64u, 100u, 255u, 257u, 1000u, 4095u, 4096u}) {
      for (const NamedValues& input : inputs(n)) {
        const auto bytes = encoder(reference(), input.x);
        ASSERT_EQ(encoder(fast(), input.x), bytes)
            << input.name << ", n = " << n << ", block = " << block;
        std::vector<float> out(n), expected(n), sum(n, 0.1f), expected_sum(n, 0.1f);
        fast().int8_decode(bytes.data(), n, block, out.data());
        reference().int8_decode(bytes.data(), n, block, expected.data());
        ASSERT_EQ(raw(out), raw(expected)) << input.name << ", n = " << n;
        fast().int8_decode_add(bytes.data(), n, block, sum.data());
        reference().int8_decode_add(bytes.data(), n, block, expected_sum.data());
        if (input.name != "any bits") {  // a sum with NaN has no defined payload
          ASSERT_EQ(raw(sum), raw(expected_sum)) << input.name << ", n = " << n;
        }
      }
    }
  }
}

// The reciprocal with its two corrections has to be the division, on exactly the inputs where an
// error of one unit in the quotient shows: quotients beside a tie.
TEST_P(CodecKernelsTest, Int8QuotientsBesideTiesRoundAsTheDivisionDoes) {
  const Rng rng(11, Stream::kTestData);
  constexpr std::size_t kBlock = 256;
  constexpr std::uint64_t kBlocks = 4000;
  for (std::uint64_t b = 0; b < kBlocks; ++b) {
    const float amax = std::bit_cast<float>(0x2000'0000u + rng.words(b)[0] % 0x3F00'0000u);
    const float scale = int8_scale(std::bit_cast<std::uint32_t>(amax));
    std::vector<float> x(kBlock, amax);
    for (std::size_t i = 1; i < kBlock; ++i) {
      const float tie = (static_cast<float>(i % 127) + 0.5f) * scale;
      const auto shift = static_cast<std::uint32_t>(i % 5) - 2;  // wraps: two units to either side
      x[i] = std::min(amax, std::bit_cast<float>(std::bit_cast<std::uint32_t>(tie) + shift));
    }
    std::vector<std::byte> bytes(kBlock + sizeof(float)), expected(bytes.size());
    fast().int8_encode(x.data(), kBlock, kBlock, bytes.data());
    reference().int8_encode(x.data(), kBlock, kBlock, expected.data());
    ASSERT_EQ(bytes, expected) << "amax " << amax;
  }
}

TEST_P(CodecKernelsTest, ForbiddenCodesAreFoundAtEveryPlace) {
  for (std::size_t n = 0; n <= 200; ++n) {
    std::vector<std::byte> codes(n, std::byte{0x81});
    ASSERT_TRUE(fast().int8_codes_valid(codes.data(), n));
    for (std::size_t at = 0; at < n; ++at) {
      codes[at] = std::byte{0x80};
      ASSERT_FALSE(fast().int8_codes_valid(codes.data(), n)) << "n = " << n << ", at " << at;
      codes[at] = std::byte{0x81};
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, CodecKernelsTest,
                         ::testing::ValuesIn(available_codec_kernels().begin(),
                                             available_codec_kernels().end()),
                         [](const auto& test) { return std::string(test.param->isa); });

}  // namespace
}  // namespace isthmus
