// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "quant/codecs/decode_checks.h"
#include "quant/codecs/sparse_codec.h"

namespace isthmus {
namespace {

using Indices = std::array<std::uint16_t, kTileValues>;

// The seed in a tile's first four bytes: of the round and the tile, not of the worker.
std::uint32_t seed_of(const EncodeKey& key) {
  return Rng(key.seed, Stream::kRandomK).words(key.tile)[0];
}

// `count` of n indices, ascending, every subset alike: Floyd's algorithm (Bentley, CACM 30, 1987).
void draw_indices(std::uint32_t seed, std::size_t n, std::size_t count, std::uint16_t* indices) {
  constexpr std::size_t kWord = 64;
  std::array<std::uint64_t, kTileValues / kWord> chosen{};
  const Rng rng(seed, Stream::kRandomK);
  std::array<std::uint32_t, 4> words{};
  for (std::size_t j = n - count, draw = 0; j < n; ++j, ++draw) {
    if (draw % words.size() == 0) words = rng.words(draw / words.size(), 1);
    const auto t =
        static_cast<std::size_t>(std::uint64_t{words[draw % words.size()]} * (j + 1) >> 32);
    const bool taken = (chosen[t / kWord] >> t % kWord & 1u) != 0;
    const std::size_t pick = taken ? j : t;
    chosen[pick / kWord] |= std::uint64_t{1} << pick % kWord;
  }
  for (std::size_t w = 0; w < chosen.size(); ++w) {
    for (std::uint64_t rest = chosen[w]; rest != 0; rest &= rest - 1) {
      *indices++ =
          static_cast<std::uint16_t>(w * kWord + static_cast<std::size_t>(std::countr_zero(rest)));
    }
  }
}

class RandkCodec final : public Codec {
 public:
  explicit RandkCodec(SparseCodecSpec spec) : spec_(std::move(spec)) {}

  [[nodiscard]] std::string name() const override { return spec_.name; }
  [[nodiscard]] bool sparse() const override { return true; }
  [[nodiscard]] const SparseCodecSpec& spec() const { return spec_; }
  [[nodiscard]] bool error_feedback() const override { return spec_.error_feedback; }
  [[nodiscard]] std::size_t encoded_bytes(std::size_t n) const override {
    return n == 0 ? 0 : sizeof(std::uint32_t) + sizeof(float) * sparse_count(spec_.k, n);
  }

  // A value that is not sent may not be finite either: it is marked by a NaN in place of the first.
  void encode(std::span<const float> tile, std::span<std::byte> out,
              const EncodeKey& key) const override {
    check_encode(*this, tile, out);
    if (tile.empty()) return;
    const std::size_t count = sparse_count(spec_.k, tile.size());
    const std::uint32_t seed = seed_of(key);
    std::memcpy(out.data(), &seed, sizeof seed);
    Indices indices;
    draw_indices(seed, tile.size(), count, indices.data());
    const bool finite = std::ranges::all_of(tile, [](float v) { return std::isfinite(v); });
    for (std::size_t i = 0; i < count; ++i) {
      const float value =
          finite || i > 0 ? tile[indices[i]] : std::numeric_limits<float>::quiet_NaN();
      std::memcpy(out.data() + sizeof seed + sizeof value * i, &value, sizeof value);
    }
  }

  [[nodiscard]] Expected<void, DecodeError> decode(std::span<const std::byte> bytes,
                                                   std::span<float> out) const override {
    if (auto ok = check(bytes, out.size()); !ok) return ok;
    std::ranges::fill(out, 0.0f);
    for_each(bytes, out.size(), [&](std::size_t at, float value) { out[at] = value; });
    return {};
  }
  [[nodiscard]] Expected<void, DecodeError> decode_add(std::span<const std::byte> bytes,
                                                       std::span<float> sum) const override {
    if (auto ok = check(bytes, sum.size()); !ok) return ok;
    for_each(bytes, sum.size(), [&](std::size_t at, float value) { sum[at] += value; });
    return {};
  }

 private:
  static float value_at(std::span<const std::byte> bytes, std::size_t i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + sizeof(std::uint32_t) + sizeof value * i, sizeof value);
    return value;
  }

  [[nodiscard]] Expected<void, DecodeError> check(std::span<const std::byte> bytes,
                                                  std::size_t n) const {
    if (auto size = check_decode_size(*this, bytes, n); !size) return size;
    for (std::size_t i = 0; i < sparse_count(spec_.k, n); ++i) {
      if (!std::isfinite(value_at(bytes, i))) {
        return Unexpected<DecodeError>(DecodeError{
            fmt::format("{}: the encoder met a value that is not finite, or the bytes are damaged",
                        spec_.name)});
      }
    }
    return {};
  }

  template <typename Visit>
  void for_each(std::span<const std::byte> bytes, std::size_t n, const Visit& visit) const {
    if (n == 0) return;
    std::uint32_t seed = 0;
    std::memcpy(&seed, bytes.data(), sizeof seed);
    const std::size_t count = sparse_count(spec_.k, n);
    Indices indices;
    draw_indices(seed, n, count, indices.data());
    for (std::size_t i = 0; i < count; ++i) visit(indices[i], value_at(bytes, i));
  }

  SparseCodecSpec spec_;
};

}  // namespace

std::unique_ptr<const Codec> make_randk_codec(SparseCodecSpec spec) {
  ISTHMUS_CHECK(spec.k >= 1, spec.k);
  ISTHMUS_CHECK(spec.k <= kTileValues, spec.k);
  return std::make_unique<RandkCodec>(std::move(spec));
}

const SparseCodecSpec* randk_codec_spec(const Codec& codec) {
  const auto* const sparse = dynamic_cast<const RandkCodec*>(&codec);
  return sparse == nullptr ? nullptr : &sparse->spec();
}

}  // namespace isthmus
