// SPDX-License-Identifier: Apache-2.0
// Guesses about bytes without a signature. Each says what a sound file's chance to look so is.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include "core/base/utf8_text.h"
#include "data/file_format.h"

namespace isthmus {
namespace {

using Bytes = std::span<const std::byte>;
using Words = std::vector<std::uint16_t>;

constexpr std::size_t kBlockBytes = 4096;
constexpr std::size_t kBlocks = 256;

// Chances below which a guess is taken. Widths are tried in two byte orders for up to 34 bounds.
constexpr double kChanceOfAWidth = 1e-12;
constexpr double kChanceOfText = 1e-10;  // of three alphabets, so 3e-10 in all
constexpr double kChanceOfLowBytes = 4e-10;
constexpr double kChanceOfAMark = 1e-11;

/// Blocks spread over the file: all of a file of at most 1 MiB. Each begins at a multiple of 4096.
std::vector<Bytes> sample_of(Bytes bytes) {
  std::vector<Bytes> blocks;
  const std::size_t there = bytes.size() / kBlockBytes;
  if (there <= kBlocks) return {bytes};
  for (std::size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(bytes.subspan(i * (there - 1) / (kBlocks - 1) * kBlockBytes, kBlockBytes));
  }
  return blocks;
}

std::uint16_t swapped(std::uint16_t word) {
  return static_cast<std::uint16_t>(word << 8U | word >> 8U);
}

/// The sample as words; an even number from each block.
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

double log_choose(std::int64_t n, std::int64_t k) {
  return std::lgamma(static_cast<double>(n + 1)) - std::lgamma(static_cast<double>(k + 1)) -
         std::lgamma(static_cast<double>(n - k + 1));
}

/// Log of the chance that all of `places` places of `all` hold values of a kind that `kind` of them
/// are, when order does not depend on the place.
double log_chance(std::int64_t kind, std::int64_t places, std::int64_t all) {
  return log_choose(kind, places) - log_choose(all, places);
}

/// Whether every second value, from `first` on, is a high half of wider integers: never above a
/// small bound (ids below 2^20), or all ones (of negative numbers), and that not by chance.
struct HighHalves {
  bool found = false;
  bool negative = false;
  std::uint16_t most = 0;
};
HighHalves high_halves(const Words& words, std::size_t first) {
  constexpr std::uint16_t kMostHigh = 15;
  constexpr std::uint16_t kOnes = 0xFFFF;
  constexpr std::size_t kFewestLow = 4;  // a stream of period two is no evidence
  HighHalves result;
  std::set<std::uint16_t> low;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i % 2 != first) {
      if (low.size() < kFewestLow) low.insert(words[i]);
      continue;
    }
    if (words[i] == kOnes) {
      result.negative = true;
    } else if (words[i] > kMostHigh) {
      return result;
    } else {
      result.most = std::max(result.most, words[i]);
    }
  }
  const auto kind = std::count_if(words.begin(), words.end(), [&](std::uint16_t word) {
    return word <= result.most || (result.negative && word == kOnes);
  });
  const auto all = static_cast<std::int64_t>(words.size());
  result.found =
      low.size() >= kFewestLow && log_chance(kind, all / 2, all) < std::log(kChanceOfAWidth);
  return result;
}

/// Of 32-bit values, whether they are in turn the halves of 64-bit ones. Only for the name.
bool halves_of_64_bits(const Words& words, std::size_t first) {
  for (std::size_t i = 0; i + 3 < words.size(); i += 4) {
    const std::size_t high = first == 1 ? i + 2 : i;
    const bool zero = words[high] == 0 && words[high + 1] == 0;
    const bool ones = words[high] == 0xFFFF && words[high + 1] == 0xFFFF;
    if (!zero && !ones) return false;
  }
  return true;
}

std::optional<ForeignFormat> wider_integers(const Words& words, bool big_endian) {
  const std::size_t first = big_endian ? 0 : 1;
  const HighHalves halves = high_halves(words, first);
  if (!halves.found) return {};
  const bool wide = halves_of_64_bits(words, first);
  const char* const width = wide ? "i64" : halves.negative ? "i32" : "u32";
  ForeignFormat format;
  format.what = fmt::format("{}{}-bit integers (every second 16-bit value is {})",
                            big_endian ? "big-endian " : "", wide ? 64 : 32,
                            halves.negative    ? "0 or all ones"
                            : halves.most == 0 ? "0"
                                               : fmt::format("at most {}", halves.most));
  format.remedy =
      big_endian
          ? std::string(
                "save them with numpy.save, which writes their byte order, or "
                "as little-endian ones and say the width, tokens:FILE:") +
                width
          : fmt::format("say the width, tokens:FILE:{} (Megatron's .idx beside it would)", width);
  return format;
}

/// True for a piece of a UTF-8 text without control characters; characters that the piece's borders
/// cut are left out.
bool is_text_piece(std::string_view piece) {
  const auto inside = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; };
  for (int i = 0; i < 3 && !piece.empty() && inside(piece.front()); ++i) piece.remove_prefix(1);
  while (!piece.empty()) {
    const std::size_t length = utf8_length(piece);
    if (length == 0) return piece.size() < 4 && static_cast<unsigned char>(piece.front()) >= 0xC2;
    const char c = piece.front();
    constexpr std::string_view kLayout = "\t\n\r\f\b\x1b";
    if (length == 1 && ((c < 0x20 && kLayout.find(c) == std::string_view::npos) || c == 0x7F)) {
      return false;
    }
    piece.remove_prefix(length);
  }
  return true;
}

/// The largest low byte of all words, and how many high bytes there are.
struct LowBytes {
  int largest = 0;
  int high_bytes = 0;
};
LowBytes low_bytes(const Words& words) {
  std::bitset<256> high;
  LowBytes result;
  for (const std::uint16_t word : words) {
    result.largest = std::max(result.largest, word & 0xFF);
    high.set(word >> 8U);
  }
  result.high_bytes = static_cast<int>(high.count());
  return result;
}

/// Of the ids with one high byte one at least has each low byte with a chance of 1/256, whatever
/// ranges of ids occur.
bool by_no_chance(double fitting_low_bytes, int high_bytes, double chance) {
  return high_bytes * std::log(fitting_low_bytes / 256) < std::log(chance);
}

// Ids as text are written with few characters, so few of them are evidence enough.
constexpr std::string_view kOfNumbers = "0123456789 ,;\t\r\n-.[]";
constexpr std::string_view kOfHexadecimal = "0123456789 ,;\t\r\n-.[]abcdefABCDEFxX";

bool are_all_of(std::string_view characters, const std::vector<Bytes>& sample) {
  return std::ranges::all_of(sample, [characters](Bytes block) {
    return std::ranges::all_of(block, [characters](std::byte b) {
      return characters.find(static_cast<char>(b)) != std::string_view::npos;
    });
  });
}

std::optional<ForeignFormat> text_as_tokens(const std::vector<Bytes>& sample, int high_bytes) {
  constexpr double kMostFitting = 102;  // low bytes that go with one high byte: those of ASCII
  const bool numbers =
      by_no_chance(static_cast<double>(kOfNumbers.size()), high_bytes, kChanceOfText) &&
      are_all_of(kOfNumbers, sample);
  const bool hexadecimal =
      by_no_chance(static_cast<double>(kOfHexadecimal.size()), high_bytes, kChanceOfText) &&
      are_all_of(kOfHexadecimal, sample);
  if (!numbers && !hexadecimal && !by_no_chance(kMostFitting, high_bytes, kChanceOfText)) return {};
  for (const Bytes block : sample) {
    if (!is_text_piece({reinterpret_cast<const char*>(block.data()), block.size()})) return {};
  }
  return ForeignFormat{"text", "name it with text:FILE to train on its bytes, or tokenize it"};
}

/// Letters of old scripts and punctuation: 3 % of all 16-bit values.
bool is_common_letter(std::uint16_t unit) {
  return unit < 0x0700 || (unit >= 0x2000 && unit < 0x2070);
}
/// Of any script: 75 % of all values.
bool is_letter(std::uint16_t unit) {
  return unit < 0x0E80 || (unit >= 0x1E00 && unit < 0x2C00) || (unit >= 0x2E80 && unit < 0xD7B0) ||
         (unit >= 0xFF00 && unit < 0xFFF0);
}

/// A byte-order mark, and characters of which the different ones together are none by chance.
bool marked_utf16(const Words& words, bool swap) {
  const auto at = [&](std::size_t i) { return swap ? swapped(words[i]) : words[i]; };
  if (words.empty() || at(0) != 0xFEFF) return false;
  std::set<std::uint16_t> seen;
  double fitting = 0.03;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::uint16_t unit = at(i);
    if (unit >= 0xD800 && unit < 0xE000) continue;  // halves of rarer characters
    if (unit < 0x20 && unit != '\t' && unit != '\n' && unit != '\r') return false;
    if (!is_letter(unit)) return false;
    if (!is_common_letter(unit)) fitting = 0.8;
    seen.insert(unit);
  }
  return std::log(1.0 / 65536) + static_cast<double>(seen.size()) * std::log(fitting) <
         std::log(kChanceOfAMark);
}

/// Bytes at every second place are high bytes of characters: 0 for many, and never above 15.
bool zeros_between(const std::vector<Bytes>& sample, std::size_t first) {
  constexpr unsigned kMostHigh = 15;
  constexpr unsigned kPunctuation = 0x20;  // U+2013 and its like
  std::array<std::int64_t, 256> counts{};
  std::array<std::int64_t, 256> high{};
  std::int64_t all = 0;
  for (const Bytes block : sample) {
    for (std::size_t i = 0; i + 1 < block.size(); i += 2) {
      ++counts[static_cast<unsigned>(block[i])];
      ++counts[static_cast<unsigned>(block[i + 1])];
      ++high[static_cast<unsigned>(block[i + first])];
      all += 2;
    }
  }
  std::int64_t kind = 0;
  std::int64_t fitting = 0;
  for (unsigned b = 0; b < 256; ++b) {
    const bool fits = b <= kMostHigh || b == kPunctuation;
    if (fits && high[b] > 0) kind += counts[b];
    fitting += fits ? high[b] : 0;
  }
  // Line ends between single letters are no zeros.
  const bool lines = high['\n'] > 0 || high['\t'] > 0 || high['\r'] > 0 || high['\f'] > 0;
  return fitting == all / 2 && high[0] >= std::max<std::int64_t>(8, all / 200) && !lines &&
         log_chance(kind, all / 2, all) < std::log(kChanceOfAWidth);
}

}  // namespace

std::optional<ForeignFormat> wide_text(Bytes bytes) {
  const auto name = [](const char* what) {
    return ForeignFormat{what, "convert it: iconv -t UTF-8"};
  };
  if (const Words marked = words_of(sample_of(bytes)); !marked.empty()) {
    if (marked_utf16(marked, false)) return name("UTF-16 text (little-endian)");
    if (marked_utf16(marked, true)) return name("UTF-16 text (big-endian)");
    // A mark is no evidence of its own for what follows.
    const bool mark = marked[0] == 0xFEFF || marked[0] == 0xFFFE || marked[1] == 0xFFFE;
    if (mark) bytes = bytes.subspan(4);
  }
  const std::vector<Bytes> sample = sample_of(bytes);
  const Words words = words_of(sample);
  for (const std::size_t first : {1U, 0U}) {
    if (!zeros_between(sample, first)) continue;
    // In UTF-32 two of four bytes are 0, or three.
    bool of_32_bits = words.size() >= 2;
    for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
      const std::uint16_t high = first == 1 ? words[i + 1] : swapped(words[i]);
      of_32_bits = of_32_bits && high <= 16;
    }
    if (of_32_bits) return name("UTF-32 text, or 32-bit numbers");
    return name(first == 1 ? "UTF-16 text (little-endian), or 16-bit numbers"
                           : "UTF-16 text (big-endian), or 16-bit numbers");
  }
  return {};
}

std::optional<ForeignFormat> not_u16_tokens(Bytes bytes) {
  const std::vector<Bytes> sample = sample_of(bytes);
  Words words = words_of(sample);
  const LowBytes low = low_bytes(words);
  if (auto text = text_as_tokens(sample, low.high_bytes)) return text;
  if (marked_utf16(words, false) || marked_utf16(words, true)) {
    return ForeignFormat{"UTF-16 text", "convert it with iconv -t UTF-8, and name it with text:"};
  }
  if (auto wider = wider_integers(words, false)) return wider;
  Words turned = words;
  std::ranges::transform(turned, turned.begin(), swapped);
  if (auto wider = wider_integers(turned, true)) return wider;
  if (by_no_chance(low.largest + 1, low.high_bytes, kChanceOfLowBytes)) {
    return ForeignFormat{
        fmt::format("big-endian 16-bit integers, or 8-bit ones (no 16-bit value has a low byte "
                    "above {})",
                    low.largest),
        "save them with numpy.save, which writes their byte order, or say the width of 8-bit ones, "
        "tokens:FILE:u8"};
  }
  return {};
}

}  // namespace isthmus
