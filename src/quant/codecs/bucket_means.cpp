// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/bucket_means.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/base/check.h"
#include "quant/math/bucket_math.h"

namespace isthmus {
namespace {

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
    width = bin_width(squares, values.size());
  }

  [[nodiscard]] std::size_t of(float value) const { return bin_of(value, mean, width); }
};

}  // namespace

std::size_t bucket_mean_bytes(std::size_t k) { return k == 0 ? 0 : kBinTableBytes + (k + 3) / 4; }

void write_bucket_means(std::span<const float> values, std::span<std::byte> out) {
  ISTHMUS_CHECK(out.size() == bucket_mean_bytes(values.size()), out.size(), values.size());
  if (values.empty()) return;
  std::array<std::uint16_t, kBins> table{};
  std::ranges::fill(out, std::byte{0});
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
    table.fill(static_cast<std::uint16_t>(kQuietNanBits >> 16));
    std::memcpy(out.data(), table.data(), kBinTableBytes);
    return;
  }
  const Bins bins(values);
  std::array<double, kBins> sums{};
  std::array<std::size_t, kBins> counts{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t bin = bins.of(values[i]);
    sums[bin] += static_cast<double>(values[i]);
    ++counts[bin];
    out[kBinTableBytes + i / 4] |= static_cast<std::byte>(bin << 2 * (i % 4));
  }
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    if (counts[bin] > 0) table[bin] = bin_entry(sums[bin] / static_cast<double>(counts[bin]));
  }
  std::memcpy(out.data(), table.data(), kBinTableBytes);
}

bool read_bucket_means(std::span<const std::byte> bytes, std::span<float> values) {
  ISTHMUS_CHECK(bytes.size() == bucket_mean_bytes(values.size()), bytes.size(), values.size());
  if (values.empty()) return true;
  std::array<std::uint16_t, kBins> table{};
  std::memcpy(table.data(), bytes.data(), kBinTableBytes);
  std::array<float, kBins> means{};
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    means[bin] = float_of_bf16(table[bin]);
    if (!std::isfinite(means[bin])) return false;
  }
  const std::span<const std::byte> codes = bytes.subspan(kBinTableBytes);
  const std::size_t used = 2 * ((values.size() - 1) % 4 + 1);  // bits of the last byte
  if (std::to_integer<unsigned>(codes.back()) >> used != 0) return false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = means[std::to_integer<unsigned>(codes[i / 4]) >> 2 * (i % 4) & 3u];
  }
  return true;
}

}  // namespace isthmus
