// SPDX-License-Identifier: Apache-2.0
#include "sim/link_shares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/base/check.h"

namespace isthmus {

std::vector<double> pair_rates(std::span<const DirectedLink> links, std::size_t members) {
  ISTHMUS_CHECK(links.size() == members * members, links.size(), members);
  const auto rate = [&](std::size_t from, std::size_t to) {
    const std::int64_t bits = links[from * members + to].bits_per_s;
    return bits > 0 ? static_cast<double>(bits) : std::numeric_limits<double>::infinity();
  };
  std::vector<double> rates;
  for (std::size_t a = 0; a < members; ++a) {
    for (std::size_t b = 0; b < members; ++b) rates.push_back(std::min(rate(a, b), rate(b, a)));
  }
  return rates;
}

std::vector<double> lines_by_rates(const std::vector<double>& rates, std::size_t members) {
  std::vector<double> lines(members, 0.0);
  for (std::size_t a = 0; a < members; ++a) {
    for (std::size_t b = 0; b < members; ++b) {
      if (a != b) lines[a] = std::max(lines[a], rates[a * members + b]);
    }
  }
  return lines;
}

std::vector<std::uint32_t> shares_by_lines(std::span<const double> lines,
                                           std::span<const std::uint32_t> owners) {
  const std::size_t members = lines.size();
  ISTHMUS_CHECK(owners.empty() || owners.size() == members, owners.size(), members);
  if (members <= 2) return {};
  const double best = *std::ranges::max_element(lines);
  // f_i at a time T of vectors over the best line.
  const auto share = [&](std::size_t i, double T) {
    if (!owners.empty() && owners[i] == 0) return 0.0;
    return std::max(0.0, (T * lines[i] / best - 1) / (static_cast<double>(members) - 2));
  };
  double low = 0;
  double high = static_cast<double>(members) * best / *std::ranges::min_element(lines);
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double T = (low + high) / 2;
    double sum = 0;
    for (std::size_t m = 0; m < members; ++m) sum += share(m, T);
    (sum < 1 ? low : high) = T;
  }
  // A mean share is 64 at least.
  const double parts = std::max(4096.0, 64.0 * static_cast<double>(members));
  std::vector<std::uint32_t> shares;
  for (std::size_t m = 0; m < members; ++m) {
    shares.push_back(static_cast<std::uint32_t>(std::lround(share(m, high) * parts)));
  }
  const bool even =
      std::ranges::all_of(shares, [&](std::uint32_t each) { return each == shares.front(); });
  return even ? std::vector<std::uint32_t>() : shares;
}

std::vector<std::uint32_t> shares_by_links(std::span<const DirectedLink> links, int members,
                                           std::span<const std::uint32_t> owners) {
  const auto size = static_cast<std::size_t>(members);
  ISTHMUS_CHECK(owners.empty() || owners.size() == size, owners.size(), members);
  const std::vector<double> line = lines_by_rates(pair_rates(links, size), size);
  const double best = *std::ranges::max_element(line);
  if (members <= 2 || std::isinf(best)) return {};
  return shares_by_lines(line, owners);
}

}  // namespace isthmus
