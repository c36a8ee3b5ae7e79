// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/float_codecs.h"

#include <bit>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "quant/codecs/decode_checks.h"
#include "quant/cpu/codec_kernels.h"

namespace isthmus {
namespace {

// Values go on the wire as they lie in memory; a big-endian port has to swap here.
static_assert(std::endian::native == std::endian::little);

class Fp32Codec final : public Codec {
 public:
  [[nodiscard]] std::string name() const override { return "fp32"; }
  [[nodiscard]] std::size_t encoded_bytes(std::size_t n) const override {
    return sizeof(float) * n;
  }

  void encode(std::span<const float> tile, std::span<std::byte> out,
              const EncodeKey&) const override {
    check_encode(*this, tile, out);
    if (!tile.empty()) std::memcpy(out.data(), tile.data(), out.size());
  }
  [[nodiscard]] Expected<void, DecodeError> decode(std::span<const std::byte> bytes,
                                                   std::span<float> out) const override {
    if (auto size = check_decode_size(*this, bytes, out.size()); !size) return size;
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return {};
  }
  [[nodiscard]] Expected<void, DecodeError> decode_add(std::span<const std::byte> bytes,
                                                       std::span<float> sum) const override {
    if (auto size = check_decode_size(*this, bytes, sum.size()); !size) return size;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      float value = 0;
      std::memcpy(&value, bytes.data() + sizeof value * i, sizeof value);
      sum[i] += value;
    }
    return {};
  }
  [[nodiscard]] bool lossless() const override { return true; }
};

// The loops of a two-byte code, from the kernel table.
struct HalfLoops {
  void (*encode)(const float* x, std::size_t n, std::byte* out);
  void (*decode)(const std::byte* bytes, std::size_t n, float* out);
  void (*decode_add)(const std::byte* bytes, std::size_t n, float* sum);
};

class HalfCodec final : public Codec {
 public:
  HalfCodec(std::string name, bool error_feedback, const HalfLoops& loops)
      : name_(std::move(name)), error_feedback_(error_feedback), loops_(loops) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] bool error_feedback() const override { return error_feedback_; }
  [[nodiscard]] std::size_t encoded_bytes(std::size_t n) const override { return 2 * n; }

  void encode(std::span<const float> tile, std::span<std::byte> out,
              const EncodeKey&) const override {
    check_encode(*this, tile, out);
    loops_.encode(tile.data(), tile.size(), out.data());
  }
  [[nodiscard]] Expected<void, DecodeError> decode(std::span<const std::byte> bytes,
                                                   std::span<float> out) const override {
    if (auto size = check_decode_size(*this, bytes, out.size()); !size) return size;
    loops_.decode(bytes.data(), out.size(), out.data());
    return {};
  }
  [[nodiscard]] Expected<void, DecodeError> decode_add(std::span<const std::byte> bytes,
                                                       std::span<float> sum) const override {
    if (auto size = check_decode_size(*this, bytes, sum.size()); !size) return size;
    loops_.decode_add(bytes.data(), sum.size(), sum.data());
    return {};
  }

 private:
  std::string name_;
  bool error_feedback_;
  HalfLoops loops_;
};

}  // namespace

std::unique_ptr<const Codec> make_fp32_codec(const std::string&, bool) {
  return std::make_unique<Fp32Codec>();
}

std::unique_ptr<const Codec> make_bf16_codec(const std::string& name, bool error_feedback) {
  const CodecKernels& k = codec_kernels();
  return std::make_unique<HalfCodec>(name, error_feedback,
                                     HalfLoops{k.bf16_encode, k.bf16_decode, k.bf16_decode_add});
}

std::unique_ptr<const Codec> make_fp16_codec(const std::string& name, bool error_feedback) {
  const CodecKernels& k = codec_kernels();
  return std::make_unique<HalfCodec>(name, error_feedback,
                                     HalfLoops{k.fp16_encode, k.fp16_decode, k.fp16_decode_add});
}

}  // namespace isthmus
