// SPDX-License-Identifier: Apache-2.0
// Guesses about bytes without a signature. Each says what a sound file's chance to look so is.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include "core/base/utf8_text.h"
#include "data/file_format.h"
#include "data/guess_sample.h"
#include "data/narrow_integers.h"

namespace isthmus {
namespace {

// Chances below which a guess is taken. Widths are tried in two byte orders for up to 34 bounds.
constexpr double kChanceOfAWidth = 1e-12;
constexpr double kChanceOfText = 5e-11;  // of six kinds of text, so 3e-10 in all
constexpr double kChanceOfLowBytes = 4e-10;
constexpr double kChanceOfAMark = 1e-11;

/// Values that are unlike the others and may be: an unknown header's, or marks between documents.
std::int64_t exceptions_among(std::int64_t places) {
  return std::max<std::int64_t>(1, places / 1000);
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
  constexpr std::size_t kFewestLow = 3;
  // Beside high halves above 0 the low ones go up to 2^16; pairs of small values do not.
  constexpr std::uint16_t kLowBesideHigh = 1U << 14U;
  HighHalves result;
  std::set<std::uint16_t> low;
  std::uint16_t largest_low = 0;
  std::int64_t others = 0;
  const std::int64_t allowed = exceptions_among(static_cast<std::int64_t>(words.size() / 2));
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i % 2 != first) {
      if (low.size() < kFewestLow) low.insert(words[i]);
      largest_low = std::max(largest_low, words[i]);
      continue;
    }
    if (words[i] == kOnes) {
      result.negative = true;
    } else if (words[i] > kMostHigh) {
      if (++others > allowed) return result;
    } else {
      result.most = std::max(result.most, words[i]);
    }
  }
  if (low.size() < kFewestLow || (result.most > 0 && largest_low < kLowBesideHigh)) return result;
  const std::span<const std::uint16_t> evidence = independent(words, 2);
  const auto kind = std::ranges::count_if(evidence, [&](std::uint16_t word) {
    return word <= result.most || (result.negative && word == kOnes);
  });
  const auto all = static_cast<std::int64_t>(evidence.size());
  const std::int64_t unlike = std::min(others, all / 2);
  result.found = log_chance(kind, all / 2, all, unlike) < std::log(kChanceOfAWidth);
  return result;
}

/// Of 32-bit values, whether they are in turn the halves of 64-bit ones. Only for the name.
bool halves_of_64_bits(const Words& words, std::size_t first) {
  std::int64_t others = 0;
  for (std::size_t i = 0; i + 3 < words.size(); i += 4) {
    const std::size_t high = first == 1 ? i + 2 : i;
    const bool zero = words[high] == 0 && words[high + 1] == 0;
    const bool ones = words[high] == 0xFFFF && words[high + 1] == 0xFFFF;
    others += zero || ones ? 0 : 1;
  }
  return others <= exceptions_among(static_cast<std::int64_t>(words.size() / 4));
}

/// Whether the values of a floating-point type are ids: whole numbers, of enough unlike upper
/// halves. The upper half is a u16 id where ids are pairs: a constant one, a type say, proves
/// nothing.
template <typename Float>
bool are_whole_numbers(const std::vector<Bytes>& sample, bool big_endian) {
  constexpr std::size_t kFewest = 8;  // a pair of u16 ids is such a number in 1 of 6000
  constexpr auto kMostIds = static_cast<Float>(1U << 20U);  // from 2^23 on all floats are whole
  std::set<unsigned> unlike;
  for (const Bytes block : sample) {
    for (std::size_t at = 0; at + sizeof(Float) <= block.size(); at += sizeof(Float)) {
      std::array<std::byte, sizeof(Float)> bytes;
      std::ranges::copy(block.subspan(at, sizeof(Float)), bytes.begin());
      if (big_endian) std::ranges::reverse(bytes);
      const auto value = std::bit_cast<Float>(bytes);
      if (!(std::abs(value) < kMostIds) || value != std::trunc(value)) return false;
      const auto top = [&](std::size_t i) {
        return std::to_integer<unsigned>(bytes[sizeof(Float) - i]);
      };
      if (value != 0 && unlike.size() < kFewest) unlike.insert(256 * top(1) + top(2));
    }
  }
  return unlike.size() >= kFewest;
}

/// Value of 16 bits as IEEE half or as bfloat16, for whole-number tests; subnormals are none.
double value_of_16_bits(unsigned word, bool bfloat) {
  const int bits = bfloat ? 7 : 10;
  const int bias = bfloat ? 127 : 15;
  const unsigned mantissa = word & ((1U << bits) - 1U);
  const unsigned exponent = (word & 0x7FFFU) >> bits;
  if (exponent == 0) return mantissa == 0 ? 0 : 0.5;
  return std::ldexp(1.0 + std::ldexp(static_cast<double>(mantissa), -bits),
                    static_cast<int>(exponent) - bias);
}

/// The same of 16 bits. Ids that share a high byte are of any low bytes: the chance that all of
/// them are whole numbers is that of drawing so many of the few low bytes that make one.
bool are_whole_numbers_of_16_bits(const Words& words, bool bfloat, bool big_endian) {
  constexpr double kChance = 1e-20;
  constexpr unsigned kMost = 0x4980;  // of a bfloat16, 2^20; all larger ones are whole
  std::array<std::bitset<256>, 256> seen;
  for (const std::uint16_t word : words) {
    const unsigned value = big_endian ? swapped(word) : word;
    if ((value & 0x8000U) != 0 && value != 0x8000U) return false;
    if (bfloat ? value > kMost : value >= 0x7C00U) return false;
    const double number = value_of_16_bits(value, bfloat);
    if (number != std::trunc(number)) return false;
    seen[value >> 8U].set(value & 0xFFU);
  }
  double log_chance = 0;
  for (unsigned high = 0; high < 128; ++high) {
    const auto there = static_cast<std::int64_t>(seen[high].count());
    if (there == 0) continue;
    std::int64_t whole = 0;
    for (unsigned low = 0; low < 256; ++low) {
      const double number = value_of_16_bits(256 * high + low, bfloat);
      whole += number == std::trunc(number) ? 1 : 0;
    }
    log_chance += log_choose(whole, there) - log_choose(256, there);
  }
  return log_chance < std::log(kChance);
}

std::optional<ForeignFormat> short_floating_ids(const Words& words) {
  for (const bool big_endian : {false, true}) {
    for (const bool bfloat : {false, true}) {
      if (!are_whole_numbers_of_16_bits(words, bfloat, big_endian)) continue;
      return ForeignFormat{
          fmt::format("{}{} numbers", big_endian ? "big-endian " : "",
                      bfloat ? "bfloat16" : "16-bit floating-point"),
          fmt::format("save the ids as integers, from before they were rounded to {}",
                      bfloat ? "8 bits" : "11 bits")};
    }
  }
  return {};
}

std::optional<ForeignFormat> floating_ids(const std::vector<Bytes>& sample) {
  for (const bool big_endian : {false, true}) {
    const int bits = are_whole_numbers<double>(sample, big_endian)  ? 64
                     : are_whole_numbers<float>(sample, big_endian) ? 32
                                                                    : 0;
    if (bits == 0) continue;
    return ForeignFormat{
        fmt::format("{}{}-bit floating-point numbers", big_endian ? "big-endian " : "", bits),
        "save the ids as integers: numpy.save of .astype(numpy.uint32)"};
  }
  return {};
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

constexpr std::string_view kLayout = "\t\n\r\f\b\x1b";

/// Bytes of a piece that are no UTF-8 text, or control characters; characters that the piece's
/// borders cut are left out.
std::int64_t defects_of_text(std::string_view piece) {
  const auto inside = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; };
  for (int i = 0; i < 3 && !piece.empty() && inside(piece.front()); ++i) piece.remove_prefix(1);
  std::int64_t defects = 0;
  while (!piece.empty()) {
    const std::size_t length = utf8_length(piece);
    const char c = piece.front();
    const bool cut = piece.size() < 4 && static_cast<unsigned char>(c) >= 0xC2;
    const bool control =
        length == 1 && ((c < 0x20 && kLayout.find(c) == std::string_view::npos) || c == 0x7F);
    defects += (length == 0 && !cut) || control ? 1 : 0;
    piece.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return defects;
}

/// The largest low byte of all words, that of all but a few, and how many high bytes there are.
struct LowBytes {
  int largest = 0;
  int usual = 0;
  bool usual_by_no_chance = false;
  int high_bytes = 0;
};
LowBytes low_bytes(const Words& words) {
  std::array<int, 256> first_low{};  // of each high byte, where it is there
  first_low.fill(-1);
  std::array<std::int64_t, 256> counts{};
  LowBytes result;
  for (const std::uint16_t word : words) {
    const int low = word & 0xFF;
    ++counts[static_cast<std::size_t>(low)];
    if (first_low[word >> 8U] < 0) first_low[word >> 8U] = low;
    result.largest = std::max(result.largest, low);
  }
  std::int64_t above = 0;
  const std::int64_t allowed = exceptions_among(static_cast<std::int64_t>(words.size()));
  for (result.usual = result.largest; result.usual > 0; --result.usual) {
    above += counts[static_cast<std::size_t>(result.usual)];
    if (above > allowed) break;
  }
  std::int64_t hits = 0;
  for (const int low : first_low) {
    result.high_bytes += low >= 0 ? 1 : 0;
    hits += low >= 0 && low <= result.usual ? 1 : 0;
  }
  // Any of 256 bounds may be the usual one.
  result.usual_by_no_chance =
      log_binomial_tail(result.high_bytes, hits, (result.usual + 1) / 256.0) <
      std::log(kChanceOfAWidth / 256);
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

bool is_printable(unsigned byte) {
  return (byte >= 0x20 && byte < 0x7F) || kLayout.find(static_cast<char>(byte)) < kLayout.size();
}

/// Letters of one byte beside ASCII, and both bytes of a character of GB 2312 or EUC.
bool is_printable_of_8_bits(unsigned byte) { return is_printable(byte) || byte >= 0xA0; }

/// Whether ids of so many high bytes have low ones that fit, where the first id of each is a trial.
bool fit_by_no_chance(const Words& words, bool (*fits)(unsigned)) {
  std::bitset<256> seen;
  std::int64_t hits = 0;
  for (const std::uint16_t word : words) {
    if (seen.test(word >> 8U)) continue;
    seen.set(word >> 8U);
    hits += fits(word >> 8U) && fits(word & 0xFFU) ? 1 : 0;
  }
  int kind = 0;
  for (unsigned b = 0; b < 256; ++b) kind += fits(b) ? 1 : 0;
  return log_binomial_tail(static_cast<std::int64_t>(seen.count()), hits, kind / 256.0) <
         std::log(kChanceOfText);
}

/// Characters of ASCII, and all bytes of the upper half: no text in any encoding of bytes has
/// others than these.
bool is_no_control(unsigned byte) { return is_printable(byte) || byte >= 0x80; }

/// Texts of few characters, such as those of bases or amino acids, of letters beyond ASCII in any
/// encoding of one byte (Latin, Cyrillic), or of few characters of UTF-8: low bytes are all high
/// bytes too, which ids numbered without regard to their low byte seldom are.
bool is_of_few_characters(const Words& words) {
  constexpr std::size_t kMost = 128;
  std::bitset<256> high;
  std::set<std::uint16_t> unlike;
  for (const std::uint16_t word : words) {
    high.set(word >> 8U);
    unlike.insert(word);
    if (high.count() > kMost) return false;
  }
  for (unsigned b = 0; b < 256; ++b) {
    if (high.test(b) && !is_no_control(b)) return false;
  }
  const auto hits =
      std::ranges::count_if(unlike, [&](std::uint16_t word) { return high.test(word & 0xFFU); });
  return hits > 0 &&
         log_binomial_tail(static_cast<std::int64_t>(unlike.size()) - 1, hits - 1,
                           static_cast<double>(high.count()) / 256) < std::log(kChanceOfText);
}

/// UTF-8, with a few bytes that are not: a defect spoils two of the high bytes at most.
bool is_utf8_with_defects(const std::vector<Bytes>& sample, int high_bytes) {
  constexpr double kFitting = 102;  // low bytes that go with one high byte: those of ASCII
  std::int64_t defects = 0;
  for (const Bytes block : sample) {
    defects += defects_of_text({reinterpret_cast<const char*>(block.data()), block.size()});
  }
  return log_binomial_tail(high_bytes, high_bytes - 2 * defects, kFitting / 256) <
         std::log(kChanceOfText);
}

std::optional<ForeignFormat> text_as_tokens(const std::vector<Bytes>& sample, const Words& words,
                                            int high_bytes) {
  const bool numbers =
      by_no_chance(static_cast<double>(kOfNumbers.size()), high_bytes, kChanceOfText) &&
      are_all_of(kOfNumbers, sample);
  const bool hexadecimal =
      by_no_chance(static_cast<double>(kOfHexadecimal.size()), high_bytes, kChanceOfText) &&
      are_all_of(kOfHexadecimal, sample);
  if (!numbers && !hexadecimal && !is_utf8_with_defects(sample, high_bytes) &&
      !fit_by_no_chance(words, is_printable) && !fit_by_no_chance(words, is_printable_of_8_bits) &&
      !is_of_few_characters(words)) {
    return {};
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
  std::set<std::uint16_t> common;
  std::set<std::uint16_t> letters;
  std::set<std::uint16_t> others;
  std::size_t other_places = 0;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::uint16_t unit = at(i);
    if (unit >= 0xD800 && unit < 0xE000) continue;  // halves of rarer characters
    const bool control = unit < 0x20 && unit != '\t' && unit != '\n' && unit != '\r';
    const bool other = control || !is_letter(unit);
    (other ? others : is_common_letter(unit) ? common : letters).insert(unit);
    other_places += other ? 1 : 0;
  }
  if (other_places > std::max<std::size_t>(1, words.size() / 50)) return false;
  const auto count = [](const auto& set) { return static_cast<std::int64_t>(set.size()); };
  const std::int64_t all = count(common) + count(letters) + count(others);
  const double of_common = log_binomial_tail(all, count(common), 0.03);
  const double of_letters = log_binomial_tail(all, count(common) + count(letters), 0.8);
  return std::log(1.0 / 65536) + std::min(of_common, of_letters) < std::log(kChanceOfAMark / 2);
}

/// How often each byte is there, and at every second place.
struct ByteTally {
  std::array<std::int64_t, 256> all{};
  std::array<std::int64_t, 256> high{};
  std::int64_t places = 0;  // every second one
};
ByteTally byte_counts(const std::vector<Bytes>& sample, std::size_t first) {
  ByteTally counts;
  for (const Bytes block : sample) {
    for (std::size_t i = 0; i + 1 < block.size(); i += 2) {
      ++counts.all[static_cast<unsigned>(block[i])];
      ++counts.all[static_cast<unsigned>(block[i + 1])];
      ++counts.high[static_cast<unsigned>(block[i + first])];
      ++counts.places;
    }
  }
  return counts;
}

/// Whether all but one in fifty of every second byte fit, and that not by chance.
bool high_bytes_fit(const ByteTally& counts, bool (*fits)(unsigned)) {
  std::int64_t kind = 0;
  std::int64_t fitting = 0;
  for (unsigned b = 0; b < 256; ++b) {
    if (!fits(b)) continue;
    if (counts.high[b] > 0) kind += counts.all[b];
    fitting += counts.high[b];
  }
  const std::int64_t others = counts.places - fitting;
  return others <= std::max<std::int64_t>(1, counts.places / 50) &&
         log_chance(kind, counts.places, 2 * counts.places, others) < std::log(kChanceOfAWidth);
}

/// Bytes at every second place are high bytes of characters: 0 for many, and seldom above 15.
bool zeros_between(const ByteTally& counts) {
  constexpr std::int64_t kFewestZeros = 8;
  const std::int64_t zeros = counts.high[0];
  if (zeros < std::max(kFewestZeros, counts.places / 100)) return false;
  // Line ends between single letters are no zeros, but those of Devanagari's U+09.. look so.
  const auto& high = counts.high;
  const bool lines = high['\n'] > 0 || high['\t'] > 0 || high['\r'] > 0 || high['\f'] > 0;
  if (lines && zeros < counts.places / 20) return false;
  return high_bytes_fit(counts, [](unsigned b) {
    constexpr unsigned kMostHigh = 15;
    constexpr unsigned kPunctuation = 0x20;  // U+2013 and its like
    return b <= kMostHigh || b == kPunctuation;
  });
}

/// The same of Chinese and Japanese characters, whose low bytes are of every kind; those of
/// encodings of one or two bytes are no control characters.
bool ideographs_between(const ByteTally& counts) {
  std::int64_t controls = 0;
  for (unsigned b = 0; b < 0x20; ++b) {
    if (!is_printable(b)) controls += counts.all[b] - counts.high[b];
  }
  return controls >= std::max<std::int64_t>(8, counts.places / 50) &&
         high_bytes_fit(counts, [](unsigned b) {
           return b == 0 || b == 0x20 || b == 0x30 || b == 0xFF || (b >= 0x4E && b < 0xA0) ||
                  (b >= 0xAC && b < 0xD8);
         });
}

}  // namespace

std::optional<ForeignFormat> wide_text(Bytes bytes) {
  const auto name = [](const char* what) {
    return ForeignFormat{what, "convert it: iconv -t UTF-8"};
  };
  if (const Words marked = words_of(sample_of(bytes)); !marked.empty()) {
    // No text in bytes begins with 0xFF 0xFE, nor with 0xFE 0xFF.
    if (bytes.size() % 2 == 0 && marked[0] == 0xFEFF && marked[1] != 0) {
      return name("UTF-16 text (little-endian)");
    }
    if (bytes.size() % 2 == 0 && marked[0] == 0xFFFE) return name("UTF-16 text (big-endian)");
    if (marked_utf16(marked, false)) return name("UTF-16 text (little-endian)");
    if (marked_utf16(marked, true)) return name("UTF-16 text (big-endian)");
    // A mark is no evidence of its own for what follows.
    const bool mark = marked[0] == 0xFEFF || marked[0] == 0xFFFE || marked[1] == 0xFFFE;
    if (mark) bytes = bytes.subspan(4);
  }
  const std::vector<Bytes> sample = sample_of(bytes);
  const Words words = words_of(sample);
  for (const std::size_t first : {1U, 0U}) {
    const ByteTally counts = byte_counts(sample, first);
    if (!zeros_between(counts) && !ideographs_between(counts)) continue;
    // In UTF-32 two of four bytes are 0, or three.
    std::int64_t others = 0;
    for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
      const std::uint16_t high = first == 1 ? words[i + 1] : swapped(words[i]);
      others += high <= 16 ? 0 : 1;
    }
    if (others <= exceptions_among(counts.places / 2))
      return name("UTF-32 text, or 32-bit numbers");
    return name(first == 1 ? "UTF-16 text (little-endian), or 16-bit numbers"
                           : "UTF-16 text (big-endian), or 16-bit numbers");
  }
  return {};
}

std::optional<ForeignFormat> not_u16_tokens(Bytes bytes) {
  const std::vector<Bytes> sample = sample_of(bytes);
  Words words = words_of(sample);
  const LowBytes low = low_bytes(words);
  if (auto floating = floating_ids(sample)) return floating;
  if (auto floating = short_floating_ids(words)) return floating;
  if (auto text = text_as_tokens(sample, words, low.high_bytes)) return text;
  if (marked_utf16(words, false) || marked_utf16(words, true)) {
    return ForeignFormat{"UTF-16 text", "convert it with iconv -t UTF-8, and name it with text:"};
  }
  if (auto wider = wider_integers(words, false)) return wider;
  Words turned = words;
  std::ranges::transform(turned, turned.begin(), swapped);
  if (auto wider = wider_integers(turned, true)) return wider;
  if (auto narrow = three_byte_integers(bytes)) return narrow;
  if (by_no_chance(low.largest + 1, low.high_bytes, kChanceOfLowBytes) || low.usual_by_no_chance) {
    return ForeignFormat{
        fmt::format("big-endian 16-bit integers, or 8-bit ones (no 16-bit value has a low byte "
                    "above {}{})",
                    low.usual, low.usual < low.largest ? ", but for a few" : ""),
        "save them with numpy.save, which writes their byte order, or say the width of 8-bit ones, "
        "tokens:FILE:u8"};
  }
  std::optional<ForeignFormat> narrow = eight_bit_integers(bytes);
  if (!narrow) return {};
  // A few ids of 24 bits are little alike, and their bytes recur as those of 8-bit ids do.
  constexpr double kHardlyAlike = 0.5;
  auto wider = three_byte_integers(bytes, kHardlyAlike);
  return wider ? wider : narrow;
}

}  // namespace isthmus
