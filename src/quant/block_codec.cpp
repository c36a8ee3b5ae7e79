// SPDX-License-Identifier: Apache-2.0
#include "quant/block_codec.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "quant/block_kernels.h"
#include "quant/codec_kernels.h"
#include "quant/decode_checks.h"
#include "quant/stochastic.h"

namespace isthmus {
namespace {

constexpr float kTernaryThreshold = 0.612f;  // of the rms: least error on normal values
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One float a block, or a pair; blocks of one value make as many as there are values.
using Scales = std::array<float, 2 * kTileValues>;

int top_exponent(float top) { return static_cast<int>(bits_of(top) >> 23) - 127; }

class BlockCodec final : public Codec {
 public:
  explicit BlockCodec(BlockCodecSpec spec)
      : spec_(std::move(spec)),
        bits_(visit_grid(spec_.grid, []<typename G>(G) { return G::kBits; })),
        top_(visit_grid(spec_.grid, []<typename G>(G) { return G::kTop; })),
        largest_(largest_scale(top_)),
        kernels_(*codec_kernels().blocks),
        loops_(kernels_.grid(spec_.grid)) {}

  [[nodiscard]] std::string name() const override { return spec_.name; }
  [[nodiscard]] std::size_t encoded_bytes(std::size_t n) const override {
    return plane_bytes(n) + code_bytes(n, bits_);
  }
  [[nodiscard]] bool error_feedback() const override { return spec_.error_feedback; }

  void encode(std::span<const float> tile, std::span<std::byte> out,
              const EncodeKey& key) const override {
    check_encode(*this, tile, out);
    if (tile.empty()) return;
    const std::size_t n = tile.size();
    const std::size_t count = scale_count(n);
    Scales ideal;
    Scales effective;
    Scales thresholds;
    find_scales(tile, ideal.data(), thresholds.data());
    write_scales(spec_.form, top_, std::span(ideal).first(count), out.first(plane_bytes(n)),
                 std::span(effective).first(count));
    const std::span<std::byte> codes = out.subspan(plane_bytes(n));
    if (spec_.stochastic) {
      encode_stochastically(spec_.grid, tile, spec_.block, std::span(effective).first(count), key,
                            codes);
      return;
    }
    const bool ternary = spec_.statistic == Statistic::kTernary;
    loops_.encode(tile.data(), n, spec_.block, ternary ? thresholds.data() : effective.data(),
                  codes.data());
  }

  [[nodiscard]] Expected<void, DecodeError> decode(std::span<const std::byte> bytes,
                                                   std::span<float> out) const override {
    return decode_with(loops_.decode, bytes, out);
  }
  [[nodiscard]] Expected<void, DecodeError> decode_add(std::span<const std::byte> bytes,
                                                       std::span<float> sum) const override {
    return decode_with(loops_.decode_add, bytes, sum);
  }

 private:
  [[nodiscard]] std::size_t plane_bytes(std::size_t n) const {
    return scale_bytes(spec_.form, blocks_of(n, spec_.block));
  }
  [[nodiscard]] std::size_t scale_count(std::size_t n) const {
    return blocks_of(n, spec_.block) * (spec_.form == ScaleForm::kRange ? 2 : 1);
  }

  // The whole tile is checked first, so that a refused one leaves a sum untouched.
  [[nodiscard]] Expected<void, DecodeError> decode_with(decltype(GridLoops::decode) loop,
                                                        std::span<const std::byte> bytes,
                                                        std::span<float> values) const {
    const std::size_t n = values.size();
    if (auto size = check_decode_size(*this, bytes, n); !size) return size;
    if (n == 0) return {};
    Scales scales;
    const std::size_t plane = plane_bytes(n);
    if (auto ok = read_scales(spec_.form, top_, bytes.first(plane),
                              std::span(scales).first(scale_count(n)));
        !ok) {
      return Unexpected<DecodeError>(
          DecodeError{fmt::format("{}: {}", spec_.name, ok.error().what)});
    }
    if (!loops_.valid(bytes.data() + plane, n)) {
      return Unexpected<DecodeError>(
          DecodeError{fmt::format("{}: a code or unused bits that no encoder makes", spec_.name)});
    }
    loop(bytes.data() + plane, n, spec_.block, scales.data(), values.data());
    return {};
  }

  [[nodiscard]] float power_of_two_for(std::uint32_t largest_bits) const {
    if (largest_bits >= kInfinityBits) return kNan;
    if (largest_bits == 0) return 0;
    const int field = static_cast<int>(largest_bits >> 23) - top_exponent(top_);
    return field <= 0 ? 0x1p-127f : float_of(static_cast<std::uint32_t>(field) << 23);
  }
  [[nodiscard]] float finite_or_nan(double scale) const {
    if (!std::isfinite(scale)) return kNan;
    const double largest = static_cast<double>(largest_);
    return static_cast<float>(scale < largest ? scale : largest);
  }

  void find_scales(std::span<const float> tile, float* ideal, float* thresholds) const {
    const std::size_t nb = blocks_of(tile.size(), spec_.block);
    switch (spec_.statistic) {
      case Statistic::kLargest:
      case Statistic::kPowerOfTwo:
        find_largest(tile, nb, ideal);
        return;
      case Statistic::kMean:
      case Statistic::kRms:
        find_mean(tile, nb, ideal);
        return;
      case Statistic::kTernary:
        find_ternary(tile, nb, ideal, thresholds);
        return;
      case Statistic::kRange:
        find_range(tile, nb, ideal);
        return;
    }
  }

  void find_largest(std::span<const float> tile, std::size_t nb, float* ideal) const {
    std::array<std::uint32_t, kTileValues> largest;
    kernels_.block_amax(tile.data(), tile.size(), spec_.block, largest.data());
    if (spec_.statistic == Statistic::kLargest) {
      kernels_.scales_for(largest.data(), nb, top_, largest_, ideal);
    } else {
      for (std::size_t b = 0; b < nb; ++b) ideal[b] = power_of_two_for(largest[b]);
    }
  }

  [[nodiscard]] double values_in(std::size_t b, std::size_t n) const {
    return static_cast<double>(std::min(spec_.block, n - b * spec_.block));
  }

  void find_mean(std::span<const float> tile, std::size_t nb, float* ideal) const {
    const bool rms = spec_.statistic == Statistic::kRms;
    std::array<double, kTileValues> sums;
    (rms ? kernels_.block_squares : kernels_.block_sum)(tile.data(), tile.size(), spec_.block,
                                                        sums.data());
    for (std::size_t b = 0; b < nb; ++b) {
      const double mean = sums[b] / values_in(b, tile.size());
      ideal[b] = finite_or_nan(rms ? std::sqrt(mean) : mean);
    }
  }

  void find_ternary(std::span<const float> tile, std::size_t nb, float* ideal,
                    float* thresholds) const {
    std::array<double, kTileValues> sums;
    std::array<std::uint32_t, kTileValues> counts;
    kernels_.block_squares(tile.data(), tile.size(), spec_.block, sums.data());
    for (std::size_t b = 0; b < nb; ++b) {
      const double rms = std::sqrt(sums[b] / values_in(b, tile.size()));
      thresholds[b] = std::isfinite(rms) ? kTernaryThreshold * static_cast<float>(rms) : kNan;
    }
    kernels_.block_sum_above(tile.data(), tile.size(), spec_.block, thresholds, sums.data(),
                             counts.data());
    for (std::size_t b = 0; b < nb; ++b) {
      const double mean = counts[b] > 0 ? sums[b] / counts[b] : 0;
      ideal[b] = std::isnan(thresholds[b]) ? kNan : finite_or_nan(mean);
    }
  }

  // Pairs (low, step).
  void find_range(std::span<const float> tile, std::size_t nb, float* ideal) const {
    std::array<float, kTileValues> low;
    std::array<float, kTileValues> high;
    std::array<std::uint32_t, kTileValues> largest;
    kernels_.block_range(tile.data(), tile.size(), spec_.block, low.data(), high.data());
    kernels_.block_amax(tile.data(), tile.size(), spec_.block, largest.data());
    for (std::size_t b = 0; b < nb; ++b) {
      const double range = static_cast<double>(high[b]) - static_cast<double>(low[b]);
      const auto step = static_cast<float>(range / static_cast<double>(top_));
      const bool short_of = step < 0x1p-126f && static_cast<double>(step) * 255 < range;
      const bool finite = largest[b] < kInfinityBits;
      ideal[2 * b] = finite ? low[b] : 0;
      ideal[2 * b + 1] = !finite ? kNan : short_of ? float_of(bits_of(step) + 1) : step;
    }
  }

  BlockCodecSpec spec_;
  unsigned bits_;
  float top_;
  float largest_;  // scale
  const BlockKernels& kernels_;
  const GridLoops& loops_;
};

}  // namespace

std::unique_ptr<const Codec> make_block_codec(BlockCodecSpec spec) {
  ISTHMUS_CHECK(std::has_single_bit(spec.block), spec.block);
  ISTHMUS_CHECK(spec.block <= kTileValues, spec.block);
  return std::make_unique<BlockCodec>(std::move(spec));
}

}  // namespace isthmus
