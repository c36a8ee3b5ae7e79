// SPDX-License-Identifier: Apache-2.0
// The codec of contributions that are bytes: a value is one byte, 0 .. 255.
#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "isthmus/transport.h"

namespace isthmus {
namespace {

class PlainBytes final : public Codec {
 public:
  [[nodiscard]] std::string name() const override { return "bytes"; }
  [[nodiscard]] std::size_t encoded_bytes(std::size_t n) const override { return n; }
  void encode(std::span<const float> tile, std::span<std::byte> out,
              const EncodeKey& /*key*/) const override {
    ISTHMUS_CHECK(out.size() == tile.size(), out.size(), tile.size());
    std::ranges::transform(tile, out.begin(), [](float value) {
      // Not std::clamp, which passes NaN on; NaN becomes 0.
      const float bounded = value > 0 ? std::min(value, 255.0f) : 0.0f;
      return static_cast<std::byte>(std::nearbyint(bounded));
    });
  }
  [[nodiscard]] Expected<void, DecodeError> decode(std::span<const std::byte> bytes,
                                                   std::span<float> out) const override {
    if (bytes.size() != out.size()) {
      return Unexpected<DecodeError>(DecodeError{"bytes: wrong size"});
    }
    std::ranges::transform(bytes, out.begin(),
                           [](std::byte byte) { return static_cast<float>(byte); });
    return {};
  }
  [[nodiscard]] Expected<void, DecodeError> decode_add(std::span<const std::byte> bytes,
                                                       std::span<float> sum) const override {
    if (bytes.size() != sum.size()) {
      return Unexpected<DecodeError>(DecodeError{"bytes: wrong size"});
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += static_cast<float>(bytes[i]);
    }
    return {};
  }
};

}  // namespace

std::shared_ptr<const Codec> plain_bytes() {
  // Stateless: every caller and round may hold the same one.
  static const auto codec = std::make_shared<const PlainBytes>();
  return codec;
}

}  // namespace isthmus
