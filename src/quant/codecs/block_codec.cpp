// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/block_codec.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "quant/codecs/decode_checks.h"
#include "quant/codecs/stochastic.h"
#include "quant/cpu/block_kernels.h"
#include "quant/cpu/codec_kernels.h"
#include "quant/math/scale_math.h"

namespace isthmus {
namespace {

// One float a block, or a pair; blocks of one value make as many as there are values.
using Scales = std::array<float, 2 * kTileValues>;

class BlockCodec final : public Codec {
 public:
  explicit BlockCodec(BlockCodecSpec spec)
      : spec_(std::move(spec)),
        bits_(visit_grid(spec_.grid, []<typename G>(G) { return G::kBits; })),
        top_(visit_grid(spec_.grid, []<typename G>(G) { return G::kTop; })),
        largest_(largest_scale(top_)),
        kernels_(*codec_kernels().blocks),
        loops_(kernels_.grid(spec_.grid)),
        block_inverse_(1 / static_cast<double>(spec_.block)),
        part_(whole_tiles() ? kTileValues : std::max(spec_.block, kPart)) {}

  [[nodiscard]] std::string name() const override { return spec_.name; }
  [[nodiscard]] std::size_t encoded_bytes(std::size_t n) const override {
    return plane_bytes(n) + code_bytes(n, bits_);
  }
  [[nodiscard]] bool error_feedback() const override { return spec_.error_feedback; }
  [[nodiscard]] const BlockCodecSpec& spec() const { return spec_; }

  void encode(std::span<const float> tile, std::span<std::byte> out,
              const EncodeKey& key) const override {
    check_encode(*this, tile, out);
    if (tile.empty()) return;
    Scales scales;
    Part part{.x = tile.first(0),
              .scales = std::span(scales).first(0),
              .plane = out.first(0),
              .codes = out.subspan(plane_bytes(tile.size()), 0)};
    // The scales of a part are found before the one in front of it is coded, so that nothing waits.
    for (std::size_t begin = 0; begin < tile.size(); begin += part_) {
      const Part before = part;
      const std::size_t n = std::min(part_, tile.size() - begin);
      part.x = tile.subspan(begin, n);
      part.scales = {before.scales.data() + before.scales.size(), scale_count(n)};
      part.plane = {before.plane.data() + before.plane.size(), plane_bytes(n)};
      part.codes = {before.codes.data() + before.codes.size(), code_bytes(n, bits_)};
      find_scales(part);
      if (begin > 0) write_codes(before, key);
    }
    write_codes(part, key);
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
  [[nodiscard]] bool whole_tiles() const {  // true if a value's code depends on the whole tile
    return spec_.stochastic || spec_.form == ScaleForm::kFp16 || spec_.form == ScaleForm::kE4M3;
  }
  // Some blocks of a tile, all of them where the tile has a scale.
  struct Part {
    std::span<const float> x;
    std::span<float> scales;
    std::span<std::byte> plane;
    std::span<std::byte> codes;
  };

  void find_scales(const Part& part) const {
    switch (spec_.statistic) {
      case Statistic::kLargest:
      case Statistic::kPowerOfTwo:
        find_largest(part.x, part.scales);
        break;
      case Statistic::kMean:
      case Statistic::kRms:
        find_mean(part.x, part.scales);
        break;
      case Statistic::kTernary:
        encode_ternary(part);
        break;
      case Statistic::kRange:
        find_range(part.x, part.scales);
        break;
    }
    write_scales(spec_.form, top_, part.scales, part.plane);
  }

  void write_codes(const Part& part, const EncodeKey& key) const {
    if (spec_.stochastic) {
      encode_stochastically(spec_.grid, part.x, spec_.block, part.scales, key, part.codes);
    } else if (spec_.statistic != Statistic::kTernary) {  // those came with the scales
      loops_.encode(part.x.data(), part.x.size(), spec_.block, part.scales.data(),
                    part.codes.data());
    }
  }

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

  void find_largest(std::span<const float> x, std::span<float> scales) const {
    std::array<std::uint32_t, kTileValues> largest;
    kernels_.block_amax(x.data(), x.size(), spec_.block, largest.data());
    if (spec_.statistic == Statistic::kLargest) {
      kernels_.scales_for(largest.data(), scales.size(), top_, largest_, scales.data());
      return;
    }
    for (std::size_t b = 0; b < scales.size(); ++b) {
      scales[b] = power_of_two_scale(largest[b], top_);
    }
  }

  // Sum over the values of block b of n; exact for a power of two, as all but the last one are.
  [[nodiscard]] double mean_of(double sum, std::size_t b, std::size_t n) const {
    const std::size_t count = std::min(spec_.block, n - b * spec_.block);
    return count == spec_.block ? sum * block_inverse_ : sum / static_cast<double>(count);
  }

  void find_mean(std::span<const float> x, std::span<float> scales) const {
    const bool rms = spec_.statistic == Statistic::kRms;
    std::array<double, kTileValues> sums;
    (rms ? kernels_.block_squares : kernels_.block_sum)(x.data(), x.size(), spec_.block,
                                                        sums.data());
    for (std::size_t b = 0; b < scales.size(); ++b) {
      const double mean = mean_of(sums[b], b, x.size());
      scales[b] = mean_scale(rms ? std::sqrt(mean) : mean, largest_);
    }
  }

  void encode_ternary(const Part& part) const {
    const std::size_t n = part.x.size();
    std::array<double, kTileValues> sums;
    std::array<std::uint32_t, kTileValues> counts;
    std::array<float, kTileValues> thresholds;
    kernels_.block_squares(part.x.data(), n, spec_.block, sums.data());
    for (std::size_t b = 0; b < part.scales.size(); ++b) {
      thresholds[b] = ternary_threshold(std::sqrt(mean_of(sums[b], b, n)));
    }
    kernels_.encode_ternary(part.x.data(), n, spec_.block, thresholds.data(), part.codes.data(),
                            sums.data(), counts.data());
    for (std::size_t b = 0; b < part.scales.size(); ++b) {
      const double mean = counts[b] > 0 ? sums[b] / counts[b] : 0;
      part.scales[b] = is_nan(thresholds[b]) ? thresholds[b] : mean_scale(mean, largest_);
    }
  }

  // Pairs (low, step).
  void find_range(std::span<const float> x, std::span<float> pairs) const {
    std::array<float, kTileValues> low;
    std::array<float, kTileValues> high;
    std::array<std::uint32_t, kTileValues> largest;
    kernels_.block_range(x.data(), x.size(), spec_.block, low.data(), high.data(), largest.data());
    for (std::size_t b = 0; b < pairs.size() / 2; ++b) {
      range_scale(low[b], high[b], largest[b], pairs.data() + 2 * b);
    }
  }

  BlockCodecSpec spec_;
  unsigned bits_;
  float top_;
  float largest_;  // scale
  const BlockKernels& kernels_;
  const GridLoops& loops_;
  double block_inverse_;
  std::size_t part_;  // values
};

}  // namespace

std::unique_ptr<const Codec> make_block_codec(BlockCodecSpec spec) {
  ISTHMUS_CHECK(std::has_single_bit(spec.block), spec.block);
  ISTHMUS_CHECK(spec.block <= kTileValues, spec.block);
  return std::make_unique<BlockCodec>(std::move(spec));
}

const BlockCodecSpec* block_codec_spec(const Codec& codec) {
  const auto* const block = dynamic_cast<const BlockCodec*>(&codec);
  return block == nullptr ? nullptr : &block->spec();
}

}  // namespace isthmus
