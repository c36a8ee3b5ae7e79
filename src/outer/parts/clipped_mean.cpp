// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/clipped_mean.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "outer/parts/flat_view.h"

namespace isthmus::outer {
namespace {

struct Contributor {
  std::span<const std::byte> bytes;
  double norm = 0;
  float factor = 1;
};

/// The bytes of the tile that starts at value `begin`.
std::span<const std::byte> tile_bytes(const Codec& codec, std::span<const std::byte> bytes,
                                      std::size_t begin, std::size_t values) {
  return bytes.subspan(begin / kTileValues * codec.encoded_bytes(kTileValues),
                       codec.encoded_bytes(values));
}

/// Nothing when it is no encoding of n values.
std::optional<Contributor> contributor(const Codec& codec, const Encoded& encoded, std::size_t n) {
  if (encoded.bytes.size() != encoded_bytes(codec, n)) return std::nullopt;
  double squares = 0;
  bool decodes = true;
  for_each_tile(n, [&](std::size_t begin, std::span<float> tile) {
    decodes = decodes &&
              codec.decode(tile_bytes(codec, encoded.bytes, begin, tile.size()), tile).has_value();
    squares += decodes ? sum_of_squares(tile) : 0;
  });
  if (!decodes || !std::isfinite(squares)) return std::nullopt;
  return Contributor{.bytes = encoded.bytes, .norm = std::sqrt(squares)};
}

double lower_median(const std::vector<Contributor>& contributors) {
  std::vector<double> norms;
  for (const Contributor& each : contributors) norms.push_back(each.norm);
  std::ranges::sort(norms);
  return norms[(norms.size() - 1) / 2];
}

}  // namespace

ClippedMean clipped_mean(const Codec& codec, std::span<const Encoded> contributions,
                         std::size_t n) {
  std::vector<Contributor> contributors;
  for (const Encoded& encoded : contributions) {
    if (const auto decodes = contributor(codec, encoded, n)) contributors.push_back(*decodes);
  }
  if (contributors.empty()) return {};
  const double median = lower_median(contributors);
  for (Contributor& each : contributors) {
    if (each.norm > median) each.factor = static_cast<float>(median / each.norm);
  }
  ClippedMean mean{.values = std::vector<float>(n), .used = static_cast<int>(contributors.size())};
  const auto count = static_cast<float>(contributors.size());
  for_each_tile(n, [&](std::size_t begin, std::span<float> tile) {
    const std::span<float> sum = std::span(mean.values).subspan(begin, tile.size());
    for (const Contributor& each : contributors) {
      static_cast<void>(codec.decode(tile_bytes(codec, each.bytes, begin, tile.size()), tile));
      for (std::size_t i = 0; i < tile.size(); ++i) sum[i] += each.factor * tile[i];
    }
    for (float& value : sum) value /= count;
  });
  return mean;
}

}  // namespace isthmus::outer
