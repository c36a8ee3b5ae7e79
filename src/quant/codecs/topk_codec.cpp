// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "quant/codecs/bucket_means.h"
#include "quant/codecs/cosine_transform.h"
#include "quant/codecs/decode_checks.h"
#include "quant/codecs/scale_plane.h"
#include "quant/codecs/sparse_codec.h"
#include "quant/cpu/block_kernels.h"
#include "quant/cpu/codec_kernels.h"

namespace isthmus {
namespace {

using Tile = std::array<float, kTileValues>;
using Indices = std::array<std::uint16_t, kTileValues>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::size_t value_bytes(SparseValues form, std::size_t count) {
  if (count == 0) return 0;
  switch (form) {
    case SparseValues::kFp32:
      return 4 * count;
    case SparseValues::kInt8:
      return 4 + count;
    case SparseValues::k2Bit:
      return bucket_mean_bytes(count);
    case SparseValues::kSign:
      break;
  }
  return 4 + (count + 7) / 8;
}

// int8 and sign are a block of `count` values under one fp32 scale, as the block codecs have it.
Grid grid_of(SparseValues form) { return form == SparseValues::kInt8 ? Grid::kInt8 : Grid::kSign; }

float scale_of(SparseValues form, std::span<const float> values) {
  const BlockKernels& kernels = *codec_kernels().blocks;
  if (form == SparseValues::kSign) {
    double sum = 0;
    kernels.block_sum(values.data(), values.size(), kTileValues, &sum);
    const double mean = sum / static_cast<double>(values.size());
    return std::isfinite(mean) ? static_cast<float>(mean) : kNan;
  }
  std::uint32_t largest = 0;
  kernels.block_amax(values.data(), values.size(), kTileValues, &largest);
  return scale_for(largest, kInt8Levels, largest_scale(kInt8Levels));
}

void write_values(SparseValues form, std::span<const float> values, std::span<std::byte> out) {
  if (form == SparseValues::kFp32) {
    std::memcpy(out.data(), values.data(), values.size_bytes());
    return;
  }
  if (form == SparseValues::k2Bit) return write_bucket_means(values, out);
  const float scale = scale_of(form, values);
  std::memcpy(out.data(), &scale, sizeof scale);
  codec_kernels()
      .blocks->grid(grid_of(form))
      .encode(values.data(), values.size(), kTileValues, &scale, out.data() + sizeof scale);
}

bool read_values(SparseValues form, std::span<const std::byte> bytes, std::span<float> values) {
  if (form == SparseValues::kFp32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
  }
  if (form == SparseValues::k2Bit) return read_bucket_means(bytes, values);
  float scale = 0;
  const float top = form == SparseValues::kInt8 ? kInt8Levels : 1.0f;
  if (!read_scales(ScaleForm::kFp32, top, bytes.first(sizeof scale), std::span(&scale, 1))) {
    return false;
  }
  const GridLoops& loops = codec_kernels().blocks->grid(grid_of(form));
  const std::byte* const codes = bytes.data() + sizeof scale;
  if (!loops.valid(codes, values.size())) return false;
  loops.decode(codes, values.size(), kTileValues, &scale, values.data());
  return true;
}

class TopkCodec final : public Codec {
 public:
  explicit TopkCodec(SparseCodecSpec spec) : spec_(std::move(spec)) {}

  [[nodiscard]] std::string name() const override { return spec_.name; }
  [[nodiscard]] bool sparse() const override { return true; }
  [[nodiscard]] const SparseCodecSpec& spec() const { return spec_; }
  [[nodiscard]] bool error_feedback() const override { return spec_.error_feedback; }
  [[nodiscard]] std::size_t encoded_bytes(std::size_t n) const override {
    const std::size_t count = sparse_count(spec_.k, n);
    return value_bytes(spec_.values, count) + index_bytes(spec_.indices, n, count);
  }

  void encode(std::span<const float> tile, std::span<std::byte> out,
              const EncodeKey&) const override {
    check_encode(*this, tile, out);
    if (tile.empty()) return;
    const std::size_t n = tile.size();
    const std::size_t count = sparse_count(spec_.k, n);
    Tile transformed;
    if (spec_.dct) {
      const std::span<float> coefficients = std::span(transformed).first(n);
      cosine_transform(tile, coefficients);
      tile = coefficients;
    }
    Indices indices;
    codec_kernels().select_top(tile.data(), n, count, indices.data());
    Tile values;
    for (std::size_t i = 0; i < count; ++i) values[i] = tile[indices[i]];
    const std::size_t split = value_bytes(spec_.values, count);
    write_values(spec_.values, std::span(values).first(count), out.first(split));
    write_indices(spec_.indices, n, std::span(indices).first(count), out.subspan(split));
  }

  [[nodiscard]] Expected<void, DecodeError> decode(std::span<const std::byte> bytes,
                                                   std::span<float> out) const override {
    if (auto size = check_decode_size(*this, bytes, out.size()); !size) return size;
    Tile values;
    Indices indices;
    const std::size_t count = sparse_count(spec_.k, out.size());
    if (auto ok = read(bytes, out.size(), std::span(values).first(count), indices); !ok) return ok;
    std::ranges::fill(out, 0.0f);
    for (std::size_t i = 0; i < count; ++i) out[indices[i]] = values[i];
    if (!spec_.dct) return {};
    std::copy_n(out.begin(), out.size(), values.begin());
    inverse_cosine_transform(std::span<const float>(values).first(out.size()), out);
    if (!std::ranges::all_of(out, [](float v) { return std::isfinite(v); })) {
      return Unexpected<DecodeError>(
          DecodeError{fmt::format("{}: coefficients too large to add up", spec_.name)});
    }
    return {};
  }

  [[nodiscard]] Expected<void, DecodeError> decode_add(std::span<const std::byte> bytes,
                                                       std::span<float> sum) const override {
    if (auto size = check_decode_size(*this, bytes, sum.size()); !size) return size;
    Tile values;
    if (spec_.dct) {
      const std::span<float> decoded = std::span(values).first(sum.size());
      if (auto ok = decode(bytes, decoded); !ok) return ok;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += decoded[i];
      return {};
    }
    Indices indices;
    const std::size_t count = sparse_count(spec_.k, sum.size());
    if (auto ok = read(bytes, sum.size(), std::span(values).first(count), indices); !ok) return ok;
    for (std::size_t i = 0; i < count; ++i) sum[indices[i]] += values[i];
    return {};
  }

 private:
  // Everything is checked before a value is used.
  [[nodiscard]] Expected<void, DecodeError> read(std::span<const std::byte> bytes, std::size_t n,
                                                 std::span<float> values, Indices& indices) const {
    if (n == 0) return {};
    const std::size_t split = value_bytes(spec_.values, values.size());
    if (!read_values(spec_.values, bytes.first(split), values)) {
      return Unexpected<DecodeError>(DecodeError{fmt::format(
          "{}: the encoder met a value that is not finite, or the bytes are damaged", spec_.name)});
    }
    if (!read_indices(spec_.indices, n, bytes.subspan(split),
                      std::span(indices).first(values.size()))) {
      return Unexpected<DecodeError>(
          DecodeError{fmt::format("{}: indices that no encoder makes", spec_.name)});
    }
    return {};
  }

  SparseCodecSpec spec_;
};

}  // namespace

std::size_t sparse_count(std::size_t k, std::size_t n) {
  return std::min(n, (k * n + kTileValues - 1) / kTileValues);
}

std::unique_ptr<const Codec> make_topk_codec(SparseCodecSpec spec) {
  ISTHMUS_CHECK(spec.k >= 1, spec.k);
  ISTHMUS_CHECK(spec.k <= kTileValues, spec.k);
  return std::make_unique<TopkCodec>(std::move(spec));
}

const SparseCodecSpec* topk_codec_spec(const Codec& codec) {
  const auto* const sparse = dynamic_cast<const TopkCodec*>(&codec);
  return sparse == nullptr ? nullptr : &sparse->spec();
}

}  // namespace isthmus
