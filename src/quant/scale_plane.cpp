// SPDX-License-Identifier: Apache-2.0
#include "quant/scale_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/block_grids.h"
#include "quant/codec_kernels.h"
#include "quant/codec_math.h"

namespace isthmus {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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

// +0 or positive, finite, and finite times the grid's largest value.
bool possible(float scale, float top) {
  return bits_of(scale) < kInfinityBits && std::isfinite(scale * top);
}

float largest_finite(std::span<const float> scales) {
  float most = 0;
  for (const float s : scales) most = s > most ? s : most;  // false for NaN
  return most;
}

// fp16 relative to a power of two: the byte is the exponent field of the tile's largest scale, and
// the largest relative scale lies in [2^14, 2^15). So 29 powers of two below it keep full precision
// and 39 are not yet zero, whatever the size of the values.
constexpr int kFp16Bias = 127 + 14;
double fp16_unit(unsigned byte) { return std::ldexp(1.0, static_cast<int>(byte) - kFp16Bias); }
float fp16_scale(std::uint16_t code, double unit) {
  return static_cast<float>(static_cast<double>(float_of_fp16(code)) * unit);
}

void write_fp16(float top, std::span<const float> ideal, std::span<std::byte> out,
                std::span<float> effective) {
  const unsigned byte = std::max(1u, bits_of(largest_finite(ideal)) >> 23);
  out[0] = static_cast<std::byte>(byte);
  const double unit = fp16_unit(byte);
  const double inverse = 1 / unit;
  for (std::size_t b = 0; b < ideal.size(); ++b) {
    std::uint16_t code = fp16_of(static_cast<float>(static_cast<double>(ideal[b]) * inverse));
    effective[b] = fp16_scale(code, unit);
    if (!std::isnan(effective[b]) && !possible(effective[b], top)) {  // was rounded up too far
      effective[b] = fp16_scale(--code, unit);
    }
    store(out, 1 + 2 * b, code);
  }
}

std::uint8_t e8m0_of(float power) {
  if (std::isnan(power)) return 0xFF;
  return static_cast<std::uint8_t>(bits_of(power) >> 23);  // 2^-127 and zero: 0
}
float float_of_e8m0(unsigned byte) {
  if (byte == 0xFF) return kNan;
  return byte == 0 ? 0x1p-127f : float_of(static_cast<std::uint32_t>(byte) << 23);
}

float nv_unit(std::span<const float> ideal) {
  const float most = largest_finite(ideal);
  const float unit = most / E4M3Grid::kTop;
  return unit < 0x1p-126f && unit * E4M3Grid::kTop < most ? float_of(bits_of(unit) + 1) : unit;
}

void write_e4m3(std::span<const float> ideal, std::span<std::byte> out,
                std::span<float> effective) {
  const float unit = nv_unit(ideal);
  store(out, 0, unit);
  const GridLoops& e4m3 = codec_kernels().blocks->grid(Grid::kE4M3);
  std::byte* const codes = out.data() + sizeof unit;
  e4m3.encode(ideal.data(), ideal.size(), kTileValues, &unit, codes);
  e4m3.decode(codes, ideal.size(), kTileValues, &unit, effective.data());
  for (std::size_t b = 0; b < ideal.size(); ++b) {
    if (!std::isnan(ideal[b])) continue;
    codes[b] = std::byte{0x7F};
    effective[b] = kNan;
  }
}

Unexpected<DecodeError> impossible(std::size_t block, float scale) {
  return Unexpected<DecodeError>(
      DecodeError{fmt::format("block {} has scale {}: the encoder met a value that is not finite, "
                              "or the bytes are damaged",
                              block, scale)});
}

}  // namespace

std::size_t scale_bytes(ScaleForm form, std::size_t blocks) {
  if (blocks == 0) return 0;
  switch (form) {
    case ScaleForm::kFp32:
      return 4 * blocks;
    case ScaleForm::kFp16:
      return 1 + 2 * blocks;
    case ScaleForm::kE8M0:
      return blocks;
    case ScaleForm::kE4M3:
      return 4 + blocks;
    case ScaleForm::kRange:
      break;
  }
  return 8 * blocks;
}

float largest_scale(float top) {
  float scale = std::numeric_limits<float>::max() / top;
  while (!std::isfinite(scale * top)) scale = std::nextafter(scale, 0.0f);
  return scale;
}

void write_scales(ScaleForm form, float top, std::span<const float> ideal, std::span<std::byte> out,
                  std::span<float> effective) {
  switch (form) {
    case ScaleForm::kFp32:
    case ScaleForm::kRange:
      std::memcpy(out.data(), ideal.data(), ideal.size_bytes());
      std::memcpy(effective.data(), ideal.data(), ideal.size_bytes());
      return;
    case ScaleForm::kFp16:
      write_fp16(top, ideal, out, effective);
      return;
    case ScaleForm::kE8M0:
      for (std::size_t b = 0; b < ideal.size(); ++b) {
        const std::uint8_t byte = e8m0_of(ideal[b]);
        out[b] = static_cast<std::byte>(byte);
        effective[b] = float_of_e8m0(byte);
      }
      return;
    case ScaleForm::kE4M3:
      write_e4m3(ideal, out, effective);
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
      const double unit = fp16_unit(std::to_integer<unsigned>(bytes[0]));
      for (std::size_t b = 0; b < scales.size(); ++b) {
        scales[b] = fp16_scale(load<std::uint16_t>(bytes, 1 + 2 * b), unit);
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
      if (!possible(unit, E4M3Grid::kTop)) return impossible(0, unit);
      const GridLoops& e4m3 = codec_kernels().blocks->grid(Grid::kE4M3);
      const std::byte* const codes = bytes.data() + sizeof unit;
      e4m3.decode(codes, scales.size(), kTileValues, &unit, scales.data());
      for (std::size_t b = 0; b < scales.size(); ++b) {
        if (!E4M3Grid::valid(std::to_integer<unsigned>(codes[b]))) return impossible(b, kNan);
      }
      break;
    }
    case ScaleForm::kRange: {
      std::memcpy(scales.data(), bytes.data(), bytes.size());
      for (std::size_t i = 0; i < scales.size(); i += 2) {
        const bool low = std::isfinite(scales[i]);
        const bool step = bits_of(scales[i + 1]) < kInfinityBits;
        if (!low || !step) return impossible(i / 2, low ? scales[i + 1] : scales[i]);
      }
      return {};
    }
  }
  bool all = true;
  for (const float scale : scales) all = all && possible(scale, top);
  for (std::size_t b = 0; !all && b < scales.size(); ++b) {
    if (!possible(scales[b], top)) return impossible(b, scales[b]);
  }
  return {};
}

}  // namespace isthmus
