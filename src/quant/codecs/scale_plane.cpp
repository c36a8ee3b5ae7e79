// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/scale_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/cpu/codec_kernels.h"
#include "quant/math/scale_math.h"

namespace isthmus {
namespace {

constexpr float kNoScale = std::numeric_limits<float>::quiet_NaN();

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <typename T>
void store(std::span<std::byte> bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

float largest_finite(std::span<const float> scales) {
  float most = 0;
  for (const float s : scales) most = s > most ? s : most;  // false for NaN
  return most;
}

void write_fp16(float top, std::span<float> scales, std::span<std::byte> out) {
  const unsigned byte = fp16_scale_byte(largest_finite(scales));
  out[0] = static_cast<std::byte>(byte);
  const double unit = fp16_scale_unit(byte);
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const std::uint16_t code = fp16_scale_of(scales[b], unit, top);
    scales[b] = float_of_fp16_scale(code, unit);
    store(out, 1 + 2 * b, code);
  }
}

void write_e8m0(std::span<float> scales, std::span<std::byte> out) {
  for (std::size_t b = 0; b < scales.size(); ++b) {
    out[b] = static_cast<std::byte>(e8m0_of(scales[b]));
    scales[b] = float_of_e8m0(e8m0_of(scales[b]));
  }
}

void write_e4m3(std::span<float> scales, std::span<std::byte> out) {
  const std::size_t n = scales.size();
  const BlockKernels& kernels = *codec_kernels().blocks;
  std::uint32_t largest = 0;
  kernels.block_amax(scales.data(), n, kTileValues, &largest);
  const bool finite = largest < kInfinityBits;
  const float unit = nvfp4_unit(finite ? float_of(largest) : largest_finite(scales));
  store(out, 0, unit);
  const GridLoops& e4m3 = kernels.grid(Grid::kE4M3);
  std::byte* const codes = out.data() + sizeof unit;
  std::array<bool, kTileValues> marked;
  for (std::size_t b = 0; !finite && b < n; ++b) marked[b] = std::isnan(scales[b]);
  e4m3.encode(scales.data(), n, kTileValues, &unit, codes);
  e4m3.decode(codes, n, kTileValues, &unit, scales.data());
  for (std::size_t b = 0; !finite && b < n; ++b) {
    if (!marked[b]) continue;
    codes[b] = std::byte{0x7F};
    scales[b] = kNoScale;
  }
}

Unexpected<DecodeError> impossible(std::size_t block, float scale) {
  return Unexpected<DecodeError>(
      DecodeError{fmt::format("block {} has scale {}: the encoder met a value that is not finite, "
                              "or the bytes are damaged",
                              block, scale)});
}

}  // namespace

float largest_scale(float top) {
  float scale = std::numeric_limits<float>::max() / top;
  while (!std::isfinite(scale * top)) scale = std::nextafter(scale, 0.0f);
  return scale;
}

void write_scales(ScaleForm form, float top, std::span<float> scales, std::span<std::byte> out) {
  switch (form) {
    case ScaleForm::kFp32:
    case ScaleForm::kRange:
      std::memcpy(out.data(), scales.data(), scales.size_bytes());
      return;
    case ScaleForm::kFp16:
      write_fp16(top, scales, out);
      return;
    case ScaleForm::kE8M0:
      write_e8m0(scales, out);
      return;
    case ScaleForm::kE4M3:
      write_e4m3(scales, out);
      return;
  }
}

Expected<void, DecodeError> read_scales(ScaleForm form, float top, std::span<const std::byte> bytes,
                                        std::span<float> scales) {
  switch (form) {
    case ScaleForm::kFp32: {
      std::memcpy(scales.data(), bytes.data(), bytes.size());
      break;
    }
    case ScaleForm::kFp16: {
      const double unit = fp16_scale_unit(std::to_integer<unsigned>(bytes[0]));
      for (std::size_t b = 0; b < scales.size(); ++b) {
        scales[b] = float_of_fp16_scale(load<std::uint16_t>(bytes, 1 + 2 * b), unit);
      }
      break;
    }
    case ScaleForm::kE8M0:
      for (std::size_t b = 0; b < scales.size(); ++b) {
        scales[b] = float_of_e8m0(std::to_integer<unsigned>(bytes[b]));
      }
      break;
    case ScaleForm::kE4M3: {
      const auto unit = load<float>(bytes, 0);
      if (!possible_scale(unit, E4M3Grid::kTop)) return impossible(0, unit);
      const GridLoops& e4m3 = codec_kernels().blocks->grid(Grid::kE4M3);
      const std::byte* const codes = bytes.data() + sizeof unit;
      e4m3.decode(codes, scales.size(), kTileValues, &unit, scales.data());
      for (std::size_t b = 0; b < scales.size(); ++b) {
        if (!E4M3Grid::valid(std::to_integer<unsigned>(codes[b]))) return impossible(b, kNoScale);
      }
      break;
    }
    case ScaleForm::kRange: {
      std::memcpy(scales.data(), bytes.data(), bytes.size());
      for (std::size_t i = 0; i < scales.size(); i += 2) {
        if (possible_range(scales[i], scales[i + 1])) continue;
        return impossible(i / 2, is_finite(scales[i]) ? scales[i + 1] : scales[i]);
      }
      return {};
    }
  }
  bool all = true;
  for (const float scale : scales) all = all && possible_scale(scale, top);
  for (std::size_t b = 0; !all && b < scales.size(); ++b) {
    if (!possible_scale(scales[b], top)) return impossible(b, scales[b]);
  }
  return {};
}

}  // namespace isthmus
