// SPDX-License-Identifier: Apache-2.0
// Codecs on a device: the CPU's bytes, the CPU's floats, the CPU's refusals.
#include <algorithm>
#include <array>
#include <cmath>

#include "cuda/device_test.h"
#include "isthmus/errors.h"
#include "quant/codec_values.h"
#include "quant/cuda/cuda_codec.h"
#include "quant/cuda/cuda_codec_timing.h"

namespace isthmus::cuda::this_file {
namespace {

using isthmus::testing_support::every_spelling;
using isthmus::testing_support::hard_vectors;
using isthmus::testing_support::test_name;

// NaNs that no arithmetic of one machine alone would make: a payload, a sign, a signalling one.
constexpr std::array kOddNans = {kQuietNanBits, 0x7FFF'FFFFu, 0xFFC0'0001u, 0x7F80'0123u};
constexpr std::array kInfinities = {kInfinityBits, kInfinityBits | 0x8000'0000u};

// A sum that is a NaN has the payload that its machine chooses.
bool same_sum(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || bits_of(a) == bits_of(b);
}

constexpr EncodeKey kKey{.seed = 0x1234'5678'9ABC, .worker = 77, .tile = 5};

// Bytes that begin `off` bytes after a border of the device's memory.
class Bytes {
 public:
  Bytes(std::size_t size, std::size_t off) : array_(size + off), off_(off) {}
  [[nodiscard]] std::byte* data() const { return array_.data() + off_; }
  [[nodiscard]] std::vector<std::byte> on_host(Stream& stream) const {
    std::vector<std::byte> host(array_.size() - off_);
    copy(stream, host.data(), data(), host.size());
    stream.synchronize();
    return host;
  }
  void set(Stream& stream, const std::vector<std::byte>& bytes) {
    copy(stream, data(), bytes.data(), bytes.size());
    stream.synchronize();
  }

 private:
  DeviceArray<std::byte> array_;
  std::size_t off_;
};

class CodecOnDevice : public DeviceTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(CodecOnDevice, EncodesAndDecodesToTheBitsOfTheCpu) {
  const auto device = make_device_codec(GetParam());
  const Codec& codec = device->codec();
  Stream stream;
  FirstBadTile bad;
  for (const std::size_t n : {std::size_t{1}, std::size_t{331}, std::size_t{8501}}) {
    for (const auto& [name, x] : hard_vectors(n)) {
      SCOPED_TRACE(codec.name() + ", " + name + ", n = " + std::to_string(n));
      const std::vector<std::byte> expected = isthmus::encode(codec, x, kKey).bytes;
      const DeviceArray<float> x_device = on_device(stream, x);
      const Bytes bytes(expected.size(), n % 16);
      device->encode(stream, x_device.data(), n, bytes.data(), kKey);
      ASSERT_TRUE(bytes.on_host(stream) == expected);

      std::vector<float> y(n);
      if (!isthmus::decode(codec, expected, y)) continue;  // dct-topk: too large to add up
      const DeviceArray<float> y_device(n);
      device->decode(stream, bytes.data(), n, y_device.data(), bad);
      ASSERT_TRUE(device->check_decoded(stream, bytes.data(), n, bad).has_value());
      ASSERT_TRUE(same_bits(y, on_host(stream, y_device)));

      std::vector<float> sum = normal_floats(n, 3);
      const DeviceArray<float> sum_device = on_device(stream, sum);
      ASSERT_TRUE(isthmus::decode_add(codec, expected, sum).has_value());
      device->decode_add(stream, bytes.data(), n, sum_device.data(), bad);
      ASSERT_TRUE(device->check_decoded(stream, bytes.data(), n, bad).has_value());
      ASSERT_TRUE(same_bits(sum, on_host(stream, sum_device)));
    }
  }
}

TEST_P(CodecOnDevice, MarksWhatIsNotFiniteAsTheCpuDoes) {
  const auto device = make_device_codec(GetParam());
  const Codec& codec = device->codec();
  Stream stream;
  FirstBadTile bad;
  constexpr std::size_t kValues = 4096 + 700;
  for (const std::size_t at : {std::size_t{17}, std::size_t{4096 + 699}}) {
    for (std::size_t k = 0; k < kOddNans.size() + kInfinities.size(); ++k) {
      const std::uint32_t bits =
          k < kOddNans.size() ? kOddNans[k] : kInfinities[k - kOddNans.size()];
      std::vector<float> x = normal_floats(kValues, 4);
      x[at] = float_of(bits);
      SCOPED_TRACE(codec.name() + ", value " + std::to_string(at) + ", " + std::to_string(bits));
      const std::vector<std::byte> expected = isthmus::encode(codec, x, kKey).bytes;
      const DeviceArray<float> x_device = on_device(stream, x);
      const Bytes bytes(expected.size(), 0);
      device->encode(stream, x_device.data(), kValues, bytes.data(), kKey);
      ASSERT_TRUE(bytes.on_host(stream) == expected);

      std::vector<float> y(kValues);
      const auto decoded = isthmus::decode(codec, expected, y);
      const DeviceArray<float> y_device(kValues);
      device->decode(stream, bytes.data(), kValues, y_device.data(), bad);
      const auto checked = device->check_decoded(stream, bytes.data(), kValues, bad);
      ASSERT_EQ(checked.has_value(), decoded.has_value());
      if (decoded) {
        EXPECT_TRUE(same_bits(y, on_host(stream, y_device)));
      } else {
        EXPECT_EQ(checked.error().what, decoded.error().what);
      }
    }
  }
}

TEST_P(CodecOnDevice, RefusesDamagedTilesAndLeavesTheirSumsAlone) {
  const auto device = make_device_codec(GetParam());
  const Codec& codec = device->codec();
  Stream stream;
  FirstBadTile bad;
  constexpr std::size_t kValues = 2 * 4096 + 37;
  const std::vector<std::byte> good = isthmus::encode(codec, normal_floats(kValues, 5), kKey).bytes;
  const std::size_t tile_bytes = codec.encoded_bytes(kTileValues);
  const Rng rng(3, isthmus::Stream::kTestData);
  for (std::uint64_t k = 0; k < 24; ++k) {
    std::vector<std::byte> damaged = good;
    // Early bytes are scales, the last ones have bits that must be zero.
    const std::size_t at = k < 8    ? tile_bytes + k
                           : k < 12 ? good.size() - 1 - (k - 8)
                                    : rng.below(good.size(), k);
    damaged[at] = k % 3 == 0 ? std::byte{0xFF} : damaged[at] ^ std::byte{0x80};
    SCOPED_TRACE(codec.name() + ", byte " + std::to_string(at));
    const std::vector<float> before = normal_floats(kValues, 6);
    Bytes bytes(damaged.size(), 3);
    bytes.set(stream, damaged);
    const DeviceArray<float> sum_device = on_device(stream, before);
    device->decode_add(stream, bytes.data(), kValues, sum_device.data(), bad);
    const auto checked = device->check_decoded(stream, bytes.data(), kValues, bad);
    const std::vector<float> after = on_host(stream, sum_device);
    std::string refused;
    for (std::size_t begin = 0, byte = 0; begin < kValues; begin += kTileValues) {
      const std::size_t n = std::min(kTileValues, kValues - begin);
      std::vector<float> sum(before.begin() + static_cast<std::ptrdiff_t>(begin),
                             before.begin() + static_cast<std::ptrdiff_t>(begin + n));
      const auto one =
          codec.decode_add(std::span(damaged).subspan(byte, codec.encoded_bytes(n)), sum);
      if (!one && refused.empty()) {
        refused = "tile " + std::to_string(begin / kTileValues) + ": " + one.error().what;
      }
      ASSERT_TRUE(std::equal(sum.begin(), sum.end(),
                             after.begin() + static_cast<std::ptrdiff_t>(begin), same_sum));
      byte += codec.encoded_bytes(n);
    }
    EXPECT_EQ(checked ? "" : checked.error().what, refused);
  }
}

TEST_P(CodecOnDevice, KeepsTheResidualOfErrorFeedback) {
  const auto device = make_device_codec(GetParam());
  const Codec& codec = device->codec();
  Stream stream;
  FirstBadTile bad;
  constexpr std::size_t kValues = 4096 + 261;
  for (const float decay : {1.0f, 0.999f}) {
    ErrorFeedback feedback(kValues, decay);
    const DeviceArray<float> residual(kValues);
    fill_zero(stream, residual.data(), kValues);
    for (std::uint32_t round = 0; round < 3; ++round) {
      const std::vector<float> x = normal_floats(kValues, round, 1e-4);
      const auto expected = feedback.encode(codec, x, kKey);
      ASSERT_TRUE(expected.has_value());
      const DeviceArray<float> x_device = on_device(stream, x);
      const Bytes bytes(expected->bytes.size(), 5);
      device->encode_with_feedback(stream, residual.data(), decay, x_device.data(), kValues,
                                   bytes.data(), kKey, bad);
      ASSERT_TRUE(
          device->check_feedback(stream, residual.data(), decay, x_device.data(), kValues, bad)
              .has_value());
      EXPECT_TRUE(bytes.on_host(stream) == expected->bytes) << codec.name();
      const std::span<const float> e = feedback.residual();
      EXPECT_TRUE(same_bits(std::vector<float>(e.begin(), e.end()), on_host(stream, residual)))
          << codec.name() << ", round " << round;
    }
    // A value that is not finite: the tile's residual stays, and the CPU's words name it.
    std::vector<float> x = normal_floats(kValues, 9, 1e-4);
    x[4096 + 200] = float_of(kInfinityBits);
    const DeviceArray<float> x_device = on_device(stream, x);
    const Bytes bytes(encoded_bytes(codec, kValues), 0);
    const std::vector<float> before = on_host(stream, residual);
    device->encode_with_feedback(stream, residual.data(), decay, x_device.data(), kValues,
                                 bytes.data(), kKey, bad);
    const auto checked =
        device->check_feedback(stream, residual.data(), decay, x_device.data(), kValues, bad);
    ASSERT_FALSE(checked.has_value());
    EXPECT_EQ(checked.error().index, 4096 + 200U);
    const std::vector<float> after = on_host(stream, residual);
    EXPECT_EQ(std::memcmp(before.data() + 4096, after.data() + 4096, 261 * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(before.data(), after.data(), 4096 * sizeof(float)) == 0,
              codec.lossless());
  }
}

// A residual added to a NaN, and coefficients of infinities, are NaNs that arithmetic made.
TEST_P(CodecOnDevice, SendsTheNanOfTheCpuWhereArithmeticMadeIt) {
  const auto device = make_device_codec(GetParam());
  const Codec& codec = device->codec();
  Stream stream;
  FirstBadTile bad;
  std::vector<float> infinite = normal_floats(kTileValues, 7);
  infinite[3] = float_of(kInfinityBits);
  infinite[900] = -infinite[3];
  std::vector<std::vector<float>> inputs = {infinite};
  for (const std::uint32_t bits : kOddNans) {
    inputs.push_back(normal_floats(kTileValues, 7));
    inputs.back()[17] = float_of(bits);
  }
  for (const std::vector<float>& x : inputs) {
    std::vector<float> residual = normal_floats(kTileValues, 8, 1e-3);
    std::vector<std::byte> expected(codec.encoded_bytes(kTileValues));
    std::vector<float> tile = x;
    const DeviceArray<float> residual_device = on_device(stream, residual);
    ASSERT_FALSE(encode_with_feedback(codec, residual, 1, 0, tile, expected, kKey).has_value());
    const DeviceArray<float> x_device = on_device(stream, x);
    const Bytes bytes(expected.size(), 0);
    device->encode_with_feedback(stream, residual_device.data(), 1, x_device.data(), kTileValues,
                                 bytes.data(), kKey, bad);
    EXPECT_TRUE(bytes.on_host(stream) == expected) << codec.name() << ", " << bits_of(x[17]);
    EXPECT_FALSE(
        device->check_feedback(stream, residual_device.data(), 1, x_device.data(), kTileValues, bad)
            .has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodecOnDevice, ::testing::ValuesIn(every_spelling()),
                         [](const auto& test) { return test_name(test.param); });

class CodecSumsOnDevice : public DeviceTest {};

// |x| of a block of 64 add up to 2^24 + 1 and three times 2^-30 in the lane of the 2^24, which they
// leave as it is one by one, but not together: then the sum would be above the middle of two
// floats.
TEST_F(CodecSumsOnDevice, RunInTheOrderOfTheCodec) {
  const auto device = make_device_codec("1bit:64:norm=l1");
  std::vector<float> x(64);
  x[0] = 0x1p24f;
  x[1] = 1;
  for (const std::size_t i : {16, 32, 48}) x[i] = 0x1p-30f;
  Stream stream;
  const DeviceArray<float> x_device = on_device(stream, x);
  const Bytes bytes(encoded_bytes(device->codec(), x.size()), 0);
  device->encode(stream, x_device.data(), x.size(), bytes.data());
  float scale = 0;
  std::memcpy(&scale, bytes.on_host(stream).data(), sizeof scale);
  EXPECT_EQ(scale, 0x1p18f);
}

class CodecTimingOnDevice : public DeviceTest {};

TEST_F(CodecTimingOnDevice, MeasuresACodecOfAnySize) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{5000}}) {
    for (const char* spelling : {"int8:64", "topk:64:ef"}) {
      const DeviceCodecTiming timing = time_device_codec(spelling, {.values = n, .repetitions = 2});
      const auto codec = make_codec(spelling);
      EXPECT_EQ(timing.codec, codec->name());
      EXPECT_FALSE(timing.device.empty());
      EXPECT_EQ(timing.values, n);
      EXPECT_EQ(timing.bytes, encoded_bytes(*codec, n));
      for (const double figure : {timing.copy_gb_s, timing.encode_gb_s, timing.decode_gb_s,
                                  timing.decode_add_gb_s, timing.encode_of_copy}) {
        EXPECT_GT(figure, 0);
      }
      EXPECT_EQ(timing.decode_add_of_copy > 0, !codec->sparse());
    }
  }
}

}  // namespace
}  // namespace isthmus::cuda::this_file
