// SPDX-License-Identifier: Apache-2.0
#include "plan/exchange_ways.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/check.h"

namespace isthmus {
namespace {

/// What a ring is chosen by.
struct RingScore {
  double slowest = std::numeric_limits<double>::infinity();  // bit/s
  Duration around{0};

  [[nodiscard]] bool better_than(const RingScore& other) const {
    return slowest > other.slowest || (slowest == other.slowest && around < other.around);
  }
};

double rate_of(const DirectedLink& link) {
  return link.bits_per_s > 0 ? static_cast<double>(link.bits_per_s)
                             : std::numeric_limits<double>::infinity();
}

RingScore score_of(std::span<const DirectedLink> links, const std::vector<int>& ring) {
  RingScore score;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const auto from = static_cast<std::size_t>(ring[i]);
    const auto to = static_cast<std::size_t>(ring[(i + 1) % ring.size()]);
    const DirectedLink& link = links[from * ring.size() + to];
    score.slowest = std::min(score.slowest, rate_of(link));
    score.around += link.one_way;
  }
  return score;
}

/// From `first` on, each time to whoever the fastest link leads to; of several the nearest.
std::vector<int> greedy_ring(std::span<const DirectedLink> links, int members, int first) {
  const auto size = static_cast<std::size_t>(members);
  std::vector<int> ring{first};
  std::vector<bool> in(size);
  in[static_cast<std::size_t>(first)] = true;
  while (ring.size() < size) {
    const std::size_t row = static_cast<std::size_t>(ring.back()) * size;
    std::size_t next = size;
    for (std::size_t m = 0; m < size; ++m) {
      if (in[m]) continue;
      const auto key = [&](std::size_t to) {
        return std::pair(-rate_of(links[row + to]), links[row + to].one_way);
      };
      if (next == size || key(m) < key(next)) next = m;
    }
    in[next] = true;
    ring.push_back(static_cast<int>(next));
  }
  return ring;
}

}  // namespace

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

std::vector<int> ring_by_links(std::span<const DirectedLink> links, int members) {
  ISTHMUS_CHECK(
      links.size() == static_cast<std::size_t>(members) * static_cast<std::size_t>(members),
      links.size(), members);
  std::vector<int> ring(static_cast<std::size_t>(members));
  std::iota(ring.begin(), ring.end(), 0);
  std::vector<int> best = ring;
  RingScore score = score_of(links, ring);
  const auto consider = [&](const std::vector<int>& other) {
    const RingScore its = score_of(links, other);
    if (its.better_than(score)) {
      best = other;
      score = its;
    }
  };
  constexpr int kMostTried = 9;  // members: 8! rings
  if (members <= kMostTried) {
    while (members > 1 && std::next_permutation(ring.begin() + 1, ring.end())) consider(ring);
  } else {
    for (int first = 0; first < members; ++first) consider(greedy_ring(links, members, first));
  }
  std::rotate(best.begin(), std::find(best.begin(), best.end(), 0), best.end());
  return best;
}

double least_on_shared_lines(std::span<const DirectedLink> links,
                             const std::vector<std::vector<std::uint64_t>>& bytes) {
  const std::size_t members = bytes.size();
  double least = 0;
  for (std::size_t m = 0; m < members; ++m) {
    double out = 0, in = 0, out_rate = 0, in_rate = 0;
    for (std::size_t other = 0; other < members; ++other) {
      if (other == m) continue;
      out += static_cast<double>(bytes[m][other]) * 8;
      in += static_cast<double>(bytes[other][m]) * 8;
      out_rate = std::max(out_rate, rate_of(links[m * members + other]));
      in_rate = std::max(in_rate, rate_of(links[other * members + m]));
    }
    if (members > 1) least = std::max({least, out / out_rate, in / in_rate});
  }
  return least;
}

}  // namespace isthmus
