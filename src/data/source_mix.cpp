// SPDX-License-Identifier: Apache-2.0
#include "data/source_mix.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/rng.h"

namespace isthmus {
namespace {

constexpr std::int64_t kPoints = std::int64_t{1} << 31;  // Q
constexpr std::int64_t kStride = 1'325'334'529;          // p

/// Sum over 0 <= i < n of floor((a i + b) / m), all below 2^31 but b, which is below 2 m.
std::uint64_t sum_of_floors(std::uint64_t n, std::uint64_t m, std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  while (n > 0) {
    if (a >= m) {
      sum += n * (n - 1) / 2 * (a / m);
      a %= m;
    }
    if (b >= m) {
      sum += n * (b / m);
      b %= m;
    }
    // The points of the lattice under the line, counted along its other axis.
    const std::uint64_t top = a * n + b;
    if (top < m) break;
    n = top / m;
    b = top % m;
    std::swap(m, a);
  }
  return sum;
}

}  // namespace

SourceMix::SourceMix(std::span<const double> shares, std::uint64_t seed, std::int64_t stream,
                     std::int64_t streams) {
  double all = 0;
  for (const double share : shares) {
    ISTHMUS_CHECK(std::isfinite(share) && share > 0, share);
    all += share;
  }
  ISTHMUS_CHECK(!shares.empty() && stream >= 0 && stream < streams, stream, streams);
  double sum = 0;
  borders_.push_back(0);
  for (const double share : shares) {
    sum += share;
    const double border = std::round(sum / all * static_cast<double>(kPoints));
    // A share too small for a point has one.
    borders_.push_back(std::max(static_cast<std::int64_t>(border), borders_.back() + 1));
  }
  borders_.back() = kPoints;
  ISTHMUS_CHECK(borders_[borders_.size() - 2] < kPoints, shares.size());
  const Rng rng{seed, Stream::kShuffle};
  constexpr std::uint64_t kCounter = 0x4d69'7800'0000'0000;  // no counter of a permutation
  origin_ = (static_cast<std::int64_t>(rng.words(kCounter, 0)[0]) + stream * (kPoints / streams)) %
            kPoints;
}

std::int64_t SourceMix::below(std::int64_t border, std::int64_t g) const {
  // Each point comes once in Q samples. Of the others, a point y = x mod Q is below the border
  // where floor(y / Q) is one more than floor((y - border) / Q).
  const std::int64_t rest = g % kPoints;
  const auto n = static_cast<std::uint64_t>(rest);
  const auto q = static_cast<std::uint64_t>(kPoints);
  const auto p = static_cast<std::uint64_t>(kStride);
  const auto o = static_cast<std::uint64_t>(origin_);
  const std::uint64_t above = sum_of_floors(n, q, p, o + q - static_cast<std::uint64_t>(border)) -
                              sum_of_floors(n, q, p, o);
  return g / kPoints * border + rest - static_cast<std::int64_t>(above);
}

std::int64_t SourceMix::count(std::size_t k, std::int64_t g) const {
  return below(borders_.at(k + 1), g) - below(borders_.at(k), g);
}

SourceMix::Place SourceMix::at(std::int64_t g) const {
  ISTHMUS_CHECK(g >= 0, g);
  const std::int64_t point = (g % kPoints * kStride + origin_) % kPoints;
  const auto after = std::upper_bound(borders_.begin(), borders_.end(), point);
  const auto source = static_cast<std::size_t>(after - borders_.begin()) - 1;
  return {.source = source, .index = count(source, g)};
}

}  // namespace isthmus
