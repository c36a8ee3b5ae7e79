// SPDX-License-Identifier: Apache-2.0
#include "quant/int8_codec.h"

#include <fmt/format.h>

#include <bit>

#include "core/check.h"
#include "quant/codec_kernels.h"
#include "quant/codec_math.h"
#include "quant/decode_checks.h"

namespace isthmus {
namespace {

class Int8Codec final : public Codec {
 public:
  explicit Int8Codec(std::size_t block) : block_(block), kernels_(codec_kernels()) {}

  [[nodiscard]] std::string name() const override { return fmt::format("int8:{}", block_); }
  [[nodiscard]] std::size_t encoded_bytes(std::size_t n) const override {
    return sizeof(float) * blocks(n) + n;
  }

  void encode(std::span<const float> tile, std::span<std::byte> out) const override {
    check_encode(*this, tile, out);
    kernels_.int8_encode(tile.data(), tile.size(), block_, out.data());
  }
  [[nodiscard]] Expected<void, DecodeError> decode(std::span<const std::byte> bytes,
                                                   std::span<float> out) const override {
    if (auto valid = check_bytes(bytes, out.size()); !valid) return valid;
    kernels_.int8_decode(bytes.data(), out.size(), block_, out.data());
    return {};
  }
  [[nodiscard]] Expected<void, DecodeError> decode_add(std::span<const std::byte> bytes,
                                                       std::span<float> sum) const override {
    if (auto valid = check_bytes(bytes, sum.size()); !valid) return valid;
    kernels_.int8_decode_add(bytes.data(), sum.size(), block_, sum.data());
    return {};
  }

 private:
  [[nodiscard]] std::size_t blocks(std::size_t n) const { return (n + block_ - 1) / block_; }

  // The whole tile is checked first, so that a refused one leaves a sum untouched.
  [[nodiscard]] Expected<void, DecodeError> check_bytes(std::span<const std::byte> bytes,
                                                        std::size_t n) const {
    if (auto size = check_decode_size(*this, bytes, n); !size) return size;
    for (std::size_t b = 0; b < blocks(n); ++b) {
      float scale = 0;
      std::memcpy(&scale, bytes.data() + sizeof scale * b, sizeof scale);
      if (!int8_scale_valid(scale)) {
        return Unexpected<DecodeError>(
            DecodeError{fmt::format("{}: block {} has scale {}: the encoder met a value that is "
                                    "not finite, or the bytes are "
                                    "damaged",
                                    name(), b, scale)});
      }
    }
    if (!kernels_.int8_codes_valid(bytes.data() + sizeof(float) * blocks(n), n)) {
      return Unexpected<DecodeError>(
          DecodeError{fmt::format("{}: code -128, which no encoder makes", name())});
    }
    return {};
  }

  std::size_t block_;
  const CodecKernels& kernels_;
};

}  // namespace

std::unique_ptr<const Codec> make_int8_codec(std::size_t block) {
  ISTHMUS_CHECK(std::has_single_bit(block), block);
  ISTHMUS_CHECK(block <= kTileValues, block);
  return std::make_unique<Int8Codec>(block);
}

}  // namespace isthmus
