// SPDX-License-Identifier: Apache-2.0
#include "quant/bucket_means.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "quant/codec_math.h"

namespace isthmus {
namespace {

constexpr std::size_t kBins = 4;
constexpr double kBinsInSigmas = 6.0 / kBins;
constexpr std::size_t kTableBytes = kBins * sizeof(std::uint16_t);
constexpr std::uint16_t kLargestBf16 = 0x7F7F;

struct Bins {
  double mean = 0;
  double width = 0;  // 0: all values are equal, and go to the bin of the mean

  explicit Bins(std::span<const float> values) {
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value);
    mean = sum / static_cast<double>(values.size());
    double squares = 0;
    for (const float value : values) {
      const double centred = static_cast<double>(value) - mean;
      squares += centred * centred;
    }
    const std::size_t freedom = std::max<std::size_t>(values.size() - 1, 1);
    width = kBinsInSigmas * std::sqrt(squares / static_cast<double>(freedom));
  }

  // Round to nearest even of the centred value in widths, plus 2, within 0 .. 3.
  [[nodiscard]] std::size_t of(float value) const {
    if (!(width > 0)) return 2;
    const double q = (static_cast<double>(value) - mean) / width;
    return q <= -1.5 ? 0 : q < -0.5 ? 1 : q <= 0.5 ? 2 : 3;
  }
};

// A mean of finite values is finite, though rounding to bf16 could make it infinite.
std::uint16_t table_entry(double mean) {
  const auto rounded = static_cast<float>(mean);
  const std::uint16_t code = bf16_of(rounded);
  if (!std::isfinite(rounded) || std::isfinite(float_of_bf16(code))) return code;
  return static_cast<std::uint16_t>((code & 0x8000u) | kLargestBf16);
}

}  // namespace

std::size_t bucket_mean_bytes(std::size_t k) { return k == 0 ? 0 : kTableBytes + (k + 3) / 4; }

void write_bucket_means(std::span<const float> values, std::span<std::byte> out) {
  ISTHMUS_CHECK(out.size() == bucket_mean_bytes(values.size()), out.size(), values.size());
  if (values.empty()) return;
  std::array<std::uint16_t, kBins> table{};
  std::ranges::fill(out, std::byte{0});
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
    table.fill(static_cast<std::uint16_t>(kQuietNanBits >> 16));
    std::memcpy(out.data(), table.data(), kTableBytes);
    return;
  }
  const Bins bins(values);
  std::array<double, kBins> sums{};
  std::array<std::size_t, kBins> counts{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t bin = bins.of(values[i]);
    sums[bin] += static_cast<double>(values[i]);
    ++counts[bin];
    out[kTableBytes + i / 4] |= static_cast<std::byte>(bin << 2 * (i % 4));
  }
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    if (counts[bin] > 0) table[bin] = table_entry(sums[bin] / static_cast<double>(counts[bin]));
  }
  std::memcpy(out.data(), table.data(), kTableBytes);
}

bool read_bucket_means(std::span<const std::byte> bytes, std::span<float> values) {
  ISTHMUS_CHECK(bytes.size() == bucket_mean_bytes(values.size()), bytes.size(), values.size());
  if (values.empty()) return true;
  std::array<std::uint16_t, kBins> table{};
  std::memcpy(table.data(), bytes.data(), kTableBytes);
  std::array<float, kBins> means{};
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    means[bin] = float_of_bf16(table[bin]);
    if (!std::isfinite(means[bin])) return false;
  }
  const std::span<const std::byte> codes = bytes.subspan(kTableBytes);
  const std::size_t used = 2 * ((values.size() - 1) % 4 + 1);  // bits of the last byte
  if (std::to_integer<unsigned>(codes.back()) >> used != 0) return false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = means[std::to_integer<unsigned>(codes[i / 4]) >> 2 * (i % 4) & 3u];
  }
  return true;
}

}  // namespace isthmus
