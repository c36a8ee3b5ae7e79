// SPDX-License-Identifier: Apache-2.0
#include "data/narrow_integers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>

namespace isthmus {
namespace {

constexpr std::size_t kBytes = 256;
constexpr double kChanceOfBytes = 1e-12;       // of each of the three tests of 8-bit integers
constexpr double kChanceOfThreeBytes = 5e-14;  // of each bound, kind of word and byte order

using Counts = std::array<std::int64_t, kBytes>;

/// Whether two samples of bytes, `each` in number, may be of one distribution: that is what both
/// halves of a pair of narrow integers are, and two parts of a sound id seldom. Not by
/// significance: it only keeps files whose ids were numbered by a scheme from being refused.
/// `meetings`: least number of pairs of equal bytes across the samples, by that of pairs within.
bool alike(const Counts& one, const Counts& other, std::int64_t each, double meetings) {
  constexpr double kApart = 0.2;  // sum of the differences of the shares, at most 2
  constexpr double kSpread = 1.5;
  const auto n = static_cast<double>(each);
  double apart = 0;
  double expected = kApart;
  double across = 0, in_one = 0, in_other = 0;
  for (std::size_t b = 0; b < kBytes; ++b) {
    const auto x = static_cast<double>(one[b]), y = static_cast<double>(other[b]);
    apart += std::abs(x - y) / n;
    expected += kSpread * std::sqrt((x + y) / n / n);
    across += x * y / n;
    in_one += x * (x - 1) / (n - 1);
    in_other += y * (y - 1) / (n - 1);
  }
  return each > 1 && apart <= expected && across >= meetings * (in_one + in_other) / 2;
}

/// How often each id occurs, by its high byte and its low one.
using Occurrences = std::vector<Counts>;
Occurrences occurrences_of(const Words& words) {
  Occurrences found(kBytes);
  for (const std::uint16_t word : words) ++found[word >> 8U][word & 0xFFU];
  return found;
}

/// The low bytes of the most frequent ids of one high byte, at most `most` of them: under the null
/// hypothesis any so many of the 256, whatever the frequencies. Where equally frequent ids would be
/// cut apart (in their order in the file, say) there are fewer.
std::vector<std::size_t> frequent(const Counts& ids, std::size_t most) {
  std::vector<std::size_t> low;
  for (std::size_t b = 0; b < kBytes; ++b) {
    if (ids[b] > 0) low.push_back(b);
  }
  std::ranges::sort(low, [&](std::size_t a, std::size_t b) { return ids[a] > ids[b]; });
  std::size_t kept = std::min(most, low.size());
  while (kept > 0 && kept < low.size() && ids[low[kept - 1]] == ids[low[kept]]) --kept;
  low.resize(kept);
  return low;
}

/// Whether a low byte goes with more of the high bytes, or with fewer, than by chance.
bool low_bytes_recur(const Occurrences& found, std::size_t most) {
  std::vector<double> chances;  // by high byte
  std::array<std::int64_t, kBytes> high_bytes{};
  std::int64_t always = 0;  // high bytes that go with every low one
  for (const Counts& ids : found) {
    const std::vector<std::size_t> low = frequent(ids, most);
    if (low.empty()) continue;
    for (const std::size_t b : low) ++high_bytes[b];
    if (low.size() == kBytes) {
      ++always;
    } else {
      chances.push_back(static_cast<double>(low.size()) / kBytes);
    }
  }
  const auto [least, largest] = std::ranges::minmax(high_bytes);
  const double log_chance = std::min(log_tail_of_trials(chances, largest - always, false),
                                     log_tail_of_trials(chances, least - always, true));
  return log_chance < std::log(kChanceOfBytes / (2 * kBytes));
}

/// Whether low bytes are all high bytes too, of few, more often than by chance.
bool low_bytes_are_high_bytes(const Occurrences& found) {
  constexpr std::size_t kMost = kBytes / 2;
  std::bitset<kBytes> high;
  for (std::size_t h = 0; h < kBytes; ++h) {
    if (std::ranges::any_of(found[h], [](std::int64_t count) { return count > 0; })) high.set(h);
  }
  if (high.count() > kMost) return false;
  std::int64_t unlike = 0;
  std::int64_t hits = 0;
  for (const Counts& ids : found) {
    for (std::size_t b = 0; b < kBytes; ++b) {
      if (ids[b] == 0) continue;
      ++unlike;
      hits += high.test(b) ? 1 : 0;
    }
  }
  const double share = static_cast<double>(high.count()) / kBytes;
  return log_binomial_tail(unlike, hits, share) < std::log(kChanceOfBytes);
}

/// Largest values that are seen as the third byte of an id.
constexpr unsigned kMostThird = 15;

/// The words of a sample by the place of their first byte among every six: two ids of 24 bits.
struct ThreeBytes {
  std::array<Words, 3> words;      // 0, 2 and 4
  std::array<Counts, 6> counts{};  // of the bytes at each place
  std::array<unsigned, 6> largest = {};
};
void add(ThreeBytes& found, Bytes block, std::size_t offset) {
  for (std::size_t i = 0; i + 1 < block.size(); i += 2) {
    const auto low = std::to_integer<unsigned>(block[i]);
    const auto high = std::to_integer<unsigned>(block[i + 1]);
    const std::size_t place = (offset + i) % 6;
    found.words[place / 2].push_back(static_cast<std::uint16_t>(low + 256 * high));
    ++found.counts[place][low];
    ++found.counts[place + 1][high];
    found.largest[place] = std::max(found.largest[place], low);
    found.largest[place + 1] = std::max(found.largest[place + 1], high);
  }
}

/// Log of the chance that all words at `place` of three have a low byte, or a high one, of at most
/// `most`.
double log_chance_of_small(const ThreeBytes& found, std::size_t place, bool high, unsigned most) {
  std::int64_t all = 0;
  std::int64_t kind = 0;
  for (const Words& words : found.words) {
    all += std::ssize(words);
    kind += std::ranges::count_if(
        words, [&](std::uint16_t word) { return (high ? word >> 8U : word & 0xFFU) <= most; });
  }
  return log_chance(kind, std::ssize(found.words[place]), all);
}

}  // namespace

std::optional<ForeignFormat> eight_bit_integers(Bytes bytes) {
  constexpr std::size_t kFrequent = 16;
  const Words words = words_of(sample_of(bytes));
  Counts low{};
  Counts high{};
  for (const std::uint16_t word : words) {
    ++low[word & 0xFFU];
    ++high[word >> 8U];
  }
  if (!alike(low, high, std::ssize(words), kAlikeIds)) return {};
  const Occurrences found = occurrences_of(words);
  if (!low_bytes_recur(found, kBytes) && !low_bytes_recur(found, kFrequent) &&
      !low_bytes_are_high_bytes(found)) {
    return {};
  }
  return ForeignFormat{
      "8-bit integers (low bytes of its 16-bit values are spread as high ones are, and the same "
      "ones go with many high ones)",
      "say the width, tokens:FILE:u8"};
}

std::optional<ForeignFormat> three_byte_integers(Bytes bytes, double meetings) {
  if (bytes.size() % 3 != 0) return {};
  const std::vector<Bytes> sample = sample_of(bytes);
  ThreeBytes found;
  for (const Bytes block : sample) {
    add(found, block, static_cast<std::size_t>(block.data() - bytes.data()));
  }
  for (const bool big_endian : {false, true}) {
    const std::size_t first = big_endian ? 0 : 2;  // place of the small byte of either id
    const std::size_t second = first + 3;
    const unsigned most = std::max(found.largest[first], found.largest[second]);
    if (most > kMostThird) continue;
    bool same = true;
    for (std::size_t place = 0; place < 3; ++place) {
      same = same && alike(found.counts[place], found.counts[place + 3], std::ssize(found.words[2]),
                           meetings);
    }
    ThreeBytes evidence = found;
    if (const Words words = words_of(sample); independent(words, 3).size() < words.size()) {
      evidence = {};
      add(evidence, std::as_bytes(independent(words, 3)), 0);
    }
    const double chance = std::min(log_chance_of_small(evidence, first / 2, false, most),
                                   log_chance_of_small(evidence, second / 2, true, most));
    if (!same || chance >= std::log(kChanceOfThreeBytes)) continue;
    return ForeignFormat{
        fmt::format("{}24-bit integers (every third byte is {})", big_endian ? "big-endian " : "",
                    most == 0 ? "0" : fmt::format("at most {}", most)),
        "save them as 32-bit ones with numpy.save"};
  }
  return {};
}

}  // namespace isthmus
