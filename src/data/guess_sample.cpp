// SPDX-License-Identifier: Apache-2.0
#include "data/guess_sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace isthmus {
namespace {

constexpr std::size_t kSampleBlock = 4096;
constexpr std::size_t kBlocks = 256;

/// Least period of `block`, its length where it has none.
std::size_t period_of(std::span<const std::uint16_t> block) {
  std::vector<std::size_t> border(
      block.size());  // of each prefix: its longest that is a suffix too
  for (std::size_t i = 1; i < block.size(); ++i) {
    std::size_t length = border[i - 1];
    while (length > 0 && block[i] != block[length]) length = border[length - 1];
    border[i] = block[i] == block[length] ? length + 1 : 0;
  }
  return block.empty() ? 0 : block.size() - border.back();
}

}  // namespace

std::vector<Bytes> sample_of(Bytes bytes) {
  std::vector<Bytes> blocks;
  const std::size_t there = bytes.size() / kSampleBlock;
  if (there <= kBlocks) return {bytes};
  for (std::size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(bytes.subspan(i * (there - 1) / (kBlocks - 1) * kSampleBlock, kSampleBlock));
  }
  return blocks;
}

Words words_of(const std::vector<Bytes>& sample) {
  Words words;
  for (const Bytes block : sample) {
    const std::size_t before = words.size();
    words.resize(before + block.size() / 4 * 2);
    if (words.size() > before) {
      std::memcpy(words.data() + before, block.data(), 2 * (words.size() - before));
    }
  }
  return words;
}

std::span<const std::uint16_t> independent(const Words& words, std::size_t multiple) {
  const std::span<const std::uint16_t> all(words);
  constexpr std::size_t kBlockWords = kSampleBlock / 2;
  const std::size_t length = std::min(all.size(), kBlockWords);
  const std::size_t period = period_of(all.first(length));
  const std::size_t whole = period == 0 ? 0 : std::lcm(period, multiple);
  if (2 * whole > length) return all;
  for (std::size_t begin = 0; begin < all.size(); begin += kBlockWords) {
    const auto block = all.subspan(begin, std::min(kBlockWords, all.size() - begin));
    for (std::size_t i = period; i < block.size(); ++i) {
      if (block[i] != block[i - period]) return all;
    }
  }
  return all.first(whole);
}

double log_choose(std::int64_t n, std::int64_t k) {
  return std::lgamma(static_cast<double>(n + 1)) - std::lgamma(static_cast<double>(k + 1)) -
         std::lgamma(static_cast<double>(n - k + 1));
}

double log_chance(std::int64_t kind, std::int64_t places, std::int64_t all, std::int64_t others) {
  double most = -std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j <= others; ++j) {
    if (places - j > kind || j > all - kind) continue;
    most = std::max(most, log_choose(kind, places - j) + log_choose(all - kind, j));
  }
  return most + std::log(static_cast<double>(others + 1)) - log_choose(all, places);
}

double log_binomial_tail(std::int64_t n, std::int64_t hits, double p) {
  if (static_cast<double>(hits) <= p * static_cast<double>(n)) return 0;
  return log_choose(n, hits) + static_cast<double>(hits) * std::log(p);  // of any `hits` of them
}

// Chernoff's bound holds for every exponent, so the search for the best one needs no care.
double log_tail_of_trials(std::span<const double> chances, std::int64_t hits, bool at_most) {
  const auto bound = [&](double exponent) {
    double sum = -exponent * static_cast<double>(hits);
    for (const double chance : chances) sum += std::log1p(chance * std::expm1(exponent));
    return sum;
  };
  constexpr double kSteepest = 40;
  constexpr int kTurns = 60;
  double from = at_most ? -kSteepest : 0;
  double to = at_most ? 0 : kSteepest;
  for (int i = 0; i < kTurns; ++i) {  // it is convex
    const double third = (to - from) / 3;
    if (bound(from + third) < bound(to - third)) {
      to -= third;
    } else {
      from += third;
    }
  }
  return std::min(0.0, bound((from + to) / 2));
}

}  // namespace isthmus
