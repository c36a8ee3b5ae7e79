// SPDX-License-Identifier: Apache-2.0
#include "plan/exchange_ways.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/check.h"

namespace isthmus {
namespace {

/// [a][b] = [b][a]: the worse of both ways.
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

/// By member: its best link.
std::vector<double> lines_of(const std::vector<double>& rates, std::size_t members) {
  std::vector<double> lines(members, 0.0);
  for (std::size_t a = 0; a < members; ++a) {
    for (std::size_t b = 0; b < members; ++b) {
      if (a != b) lines[a] = std::max(lines[a], rates[a * members + b]);
    }
  }
  return lines;
}

}  // namespace

std::vector<std::uint32_t> shares_by_links(std::span<const DirectedLink> links, int members,
                                           std::span<const std::uint32_t> owners) {
  const auto size = static_cast<std::size_t>(members);
  ISTHMUS_CHECK(owners.empty() || owners.size() == size, owners.size(), members);
  const std::vector<double> line = lines_of(pair_rates(links, size), size);
  const double best = *std::ranges::max_element(line);
  if (members <= 2 || std::isinf(best)) return {};
  // f_i at a time T of vectors over the best line.
  const auto share = [&](std::size_t i, double T) {
    if (!owners.empty() && owners[i] == 0) return 0.0;
    return std::max(0.0, (T * line[i] / best - 1) / static_cast<double>(members - 2));
  };
  double low = 0;
  double high = static_cast<double>(members) * best / *std::ranges::min_element(line);
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double T = (low + high) / 2;
    double sum = 0;
    for (std::size_t m = 0; m < size; ++m) sum += share(m, T);
    (sum < 1 ? low : high) = T;
  }
  const double parts = std::max(4096.0, 64.0 * members);  // the mean share is 64 of them at least
  std::vector<std::uint32_t> shares;
  for (std::size_t m = 0; m < size; ++m) {
    shares.push_back(static_cast<std::uint32_t>(std::lround(share(m, high) * parts)));
  }
  const bool even =
      std::ranges::all_of(shares, [&](std::uint32_t each) { return each == shares.front(); });
  return even ? std::vector<std::uint32_t>() : shares;
}

std::vector<std::uint32_t> groups_by_links(std::span<const DirectedLink> links, int members) {
  const auto size = static_cast<std::size_t>(members);
  const std::vector<double> rates = pair_rates(links, size);
  std::vector<double> sorted;
  for (std::size_t a = 0; a < size; ++a) {
    for (std::size_t b = 0; b < a; ++b) sorted.push_back(rates[a * size + b]);
  }
  std::ranges::sort(sorted, std::greater<>());
  double gap = kGroupGap;
  double near = 0;  // rate of the slowest link inside a group
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const double fall = sorted[i - 1] / sorted[i];  // of two free links, no number
    if (fall > gap) {
      gap = fall;
      near = sorted[i - 1];
    }
  }
  if (near == 0) return {};
  std::vector<std::uint32_t> group(size);
  for (std::size_t m = 0; m < size; ++m) group[m] = static_cast<std::uint32_t>(m);
  for (std::size_t a = 0; a < size; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (rates[a * size + b] < near) continue;
      const auto [kept, joined] = std::minmax(group[a], group[b]);
      std::ranges::replace(group, std::uint32_t{joined}, std::uint32_t{kept});
    }
  }
  const auto first = static_cast<std::ptrdiff_t>(std::ranges::count(group, group.front()));
  bool apart = true;
  for (std::size_t m = 0; m < size; ++m) apart = apart && group[m] == m;
  return apart || first == static_cast<std::ptrdiff_t>(size) ? std::vector<std::uint32_t>() : group;
}

}  // namespace isthmus
