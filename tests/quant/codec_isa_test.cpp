// SPDX-License-Identifier: Apache-2.0
// Every instruction set of this machine against the portable loops, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "isthmus/codec.h"
#include "quant/codec_values.h"
#include "quant/cpu/codec_kernels.h"

namespace isthmus::this_file {
namespace {

using testing_support::NamedValues;

constexpr std::byte kCanary{0xA5};

// Bytes or floats as raw bits, so that NaNs compare.
template <typename T>
std::vector<std::byte> raw(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<NamedValues> inputs(std::size_t n) {
  std::vector<NamedValues> all = testing_support::hard_vectors(n);
  all.push_back({"any bits", testing_support::bit_vector(n, 7)});
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

INSTANTIATE_TEST_SUITE_P(AllIsas, CodecKernelsTest,
                         ::testing::ValuesIn(available_codec_kernels().begin(),
                                             available_codec_kernels().end()),
                         [](const auto& test) { return std::string(test.param->isa); });

}  // namespace
}  // namespace isthmus::this_file
