// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/base/check.h"
#include "core/base/utf8_text.h"
#include "text/unicode_text.h"

namespace isthmus {
namespace {

constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTrailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTrailCount;

bool is_syllable(char32_t c) { return c >= kSyllables && c < kSyllables + kSyllableCount; }

char32_t hex_number(std::string_view word) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
  ISTHMUS_CHECK(error == std::errc(), std::string(word));
  ISTHMUS_CHECK(end == word.data() + word.size(), std::string(word));
  return value;
}

/// "41+300" as code points.
std::u32string hex_numbers(std::string_view word) {
  std::u32string points;
  while (true) {
    const std::size_t plus = word.find('+');
    points.push_back(hex_number(word.substr(0, plus)));
    if (plus == std::string_view::npos) return points;
    word.remove_prefix(plus + 1);
  }
}

/// Takes the next word off the front of `line`; empty at its end.
std::string_view next_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(line.size(), word.size() + 1));
  return word;
}

/// "41-5A" or "AA".
std::pair<char32_t, char32_t> hex_range(std::string_view word) {
  const std::size_t dash = word.find('-');
  const char32_t first = hex_number(word.substr(0, dash));
  return {first, dash == std::string_view::npos ? first : hex_number(word.substr(dash + 1))};
}

}  // namespace

const UnicodeTables& UnicodeTables::get() {
  static const UnicodeTables tables;
  return tables;
}

UnicodeTables::UnicodeTables() {
  std::vector<std::uint32_t> classes(kBlocks * kBlock);
  std::string_view text = kUnicodeText;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty() && line.front() != '#') read_line(line, classes);
  }
  mark_unsafe(classes);
  mark_parts(classes);
  pack(classes);
}

void UnicodeTables::read_line(std::string_view line, std::vector<std::uint32_t>& classes) {
  const std::string_view name = next_word(line);
  constexpr std::pair<std::string_view, std::uint32_t> kSets[] = {{"L", kLetter},
                                                                  {"N", kNumber},
                                                                  {"S", kSpace},
                                                                  {"D", kDigit},
                                                                  {"W", kWordCharacter},
                                                                  {"M", kAccent},
                                                                  {"mark", kCombiningMark},
                                                                  {"control", kBertDropped},
                                                                  {"nonspacing", kBertAccent}};
  for (const auto& [set, bit] : kSets) {
    if (name != set) continue;
    while (!line.empty()) {
      const auto [first, last] = hex_range(next_word(line));
      for (char32_t c = first; c <= last; ++c) classes[c] |= bit;
    }
    return;
  }
  if (name == "cluster") return read_parts(line, classes);
  if (name == "class") {
    const std::string_view number = next_word(line);
    int value = 0;
    std::from_chars(number.data(), number.data() + number.size(), value);
    while (!line.empty()) {
      const auto [first, last] = hex_range(next_word(line));
      for (char32_t c = first; c <= last; ++c) combining_[c] = value;
    }
    return;
  }
  while (!line.empty()) {
    const std::string_view word = next_word(line);
    const std::size_t equals = word.find('=');
    const std::u32string left = hex_numbers(word.substr(0, equals));
    const std::u32string right = hex_numbers(word.substr(equals + 1));
    if (name == "compose") {
      compose_[{left.at(0), left.at(1)}] = right.at(0);
    } else if (name == "lower") {
      lower_[left.at(0)] = right;
    } else if (name == "canonical") {
      canonical_[left.at(0)] = right;
    } else {
      ISTHMUS_CHECK(name == "compatible", std::string(name));
      compatible_[left.at(0)] = right;
    }
  }
}

void UnicodeTables::set_part(std::vector<std::uint32_t>& classes, char32_t c, ClusterPart part) {
  constexpr std::uint32_t kBelow = (1U << kClusterShift) - 1;
  classes[c] = (classes[c] & kBelow) | static_cast<std::uint32_t>(part) << kClusterShift;
}

void UnicodeTables::read_parts(std::string_view line, std::vector<std::uint32_t>& classes) {
  constexpr std::pair<std::string_view, ClusterPart> kParts[] = {
      {"Control", ClusterPart::kControl},
      {"Extend", ClusterPart::kExtend},
      {"ConjunctExtend", ClusterPart::kConjunctExtend},
      {"Linker", ClusterPart::kLinker},
      {"SpacingMark", ClusterPart::kSpacingMark},
      {"Prepend", ClusterPart::kPrepend},
      {"Pictographic", ClusterPart::kPictographic},
      {"Consonant", ClusterPart::kConsonant},
      {"L", ClusterPart::kLead},
      {"V", ClusterPart::kVowel},
      {"T", ClusterPart::kTrail}};
  const std::string_view name = next_word(line);
  const auto* const part =
      std::ranges::find(kParts, name, [](const auto& each) { return each.first; });
  ISTHMUS_CHECK(part != std::end(kParts), std::string(name));
  while (!line.empty()) {
    const auto [first, last] = hex_range(next_word(line));
    for (char32_t c = first; c <= last; ++c) set_part(classes, c, part->second);
  }
}

/// The parts of clusters that are single characters, or follow from arithmetic.
void UnicodeTables::mark_parts(std::vector<std::uint32_t>& classes) {
  constexpr char32_t kFirstIndicator = 0x1F1E6, kLastIndicator = 0x1F1FF, kZeroWidthJoiner = 0x200D;
  set_part(classes, '\r', ClusterPart::kCarriageReturn);
  set_part(classes, '\n', ClusterPart::kLineFeed);
  set_part(classes, kZeroWidthJoiner, ClusterPart::kJoiner);
  for (char32_t c = kFirstIndicator; c <= kLastIndicator; ++c) {
    set_part(classes, c, ClusterPart::kRegionalIndicator);
  }
  for (char32_t i = 0; i < kSyllableCount; ++i) {
    set_part(classes, kSyllables + i,
             i % kTrailCount == 0 ? ClusterPart::kLeadVowel : ClusterPart::kLeadVowelTrail);
  }
}

void UnicodeTables::mark_unsafe(std::vector<std::uint32_t>& classes) const {
  constexpr std::uint32_t kAll =
      kComposeUnsafe | kDecomposeUnsafe | kCompatComposeUnsafe | kCompatDecomposeUnsafe;
  for (const auto& [c, value] : combining_) classes[c] |= kAll;
  for (const auto& [c, parts] : canonical_) {
    classes[c] |= kDecomposeUnsafe | kCompatDecomposeUnsafe | kCompatComposeUnsafe;
    // The characters that NFC leaves unchanged are exactly the results of composing a pair.
    classes[c] |= kComposeUnsafe;
  }
  for (const auto& [pair, c] : compose_) {
    classes[c] &= ~static_cast<std::uint32_t>(kComposeUnsafe);
    if (!compatible_.contains(c)) {
      classes[c] &= ~static_cast<std::uint32_t>(kCompatComposeUnsafe);
    }
  }
  for (const auto& [pair, c] : compose_) {
    classes[pair.second] |= kComposeUnsafe | kCompatComposeUnsafe;
  }
  for (const auto& [c, parts] : compatible_) {
    classes[c] |= kCompatDecomposeUnsafe | kCompatComposeUnsafe;
  }
  for (char32_t i = 0; i < kSyllableCount; ++i) {
    classes[kSyllables + i] |= kDecomposeUnsafe | kCompatDecomposeUnsafe;
  }
  for (char32_t i = 0; i < kVowelCount; ++i) {
    classes[kVowels + i] |= kComposeUnsafe | kCompatComposeUnsafe;
  }
  for (char32_t i = 1; i < kTrailCount; ++i) {
    classes[kTrails + i] |= kComposeUnsafe | kCompatComposeUnsafe;
  }
}

void UnicodeTables::pack(const std::vector<std::uint32_t>& classes) {
  std::map<Block, std::uint16_t> seen;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    Block block;
    std::copy_n(classes.begin() + static_cast<std::ptrdiff_t>(i * kBlock), kBlock, block.begin());
    const auto [entry, added] = seen.emplace(block, static_cast<std::uint16_t>(blocks_.size()));
    if (added) blocks_.push_back(block);
    index_[i] = entry->second;
  }
}

int UnicodeTables::combining_class(char32_t c) const {
  const auto entry = combining_.find(c);
  return entry == combining_.end() ? 0 : entry->second;
}

void UnicodeTables::decompose(char32_t c, bool compatible, std::u32string& out) const {
  if (is_syllable(c)) {
    const char32_t place = c - kSyllables;
    out.push_back(kLeads + place / (kVowelCount * kTrailCount));
    out.push_back(kVowels + place % (kVowelCount * kTrailCount) / kTrailCount);
    if (place % kTrailCount != 0) out.push_back(kTrails + place % kTrailCount);
    return;
  }
  if (compatible) {
    const auto entry = compatible_.find(c);
    if (entry != compatible_.end()) {
      out += entry->second;
      return;
    }
  }
  const auto entry = canonical_.find(c);
  if (entry != canonical_.end()) {
    out += entry->second;
  } else {
    out.push_back(c);
  }
}

char32_t UnicodeTables::compose(char32_t first, char32_t second) const {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTrailCount;
  }
  if (is_syllable(first) && (first - kSyllables) % kTrailCount == 0 && second > kTrails &&
      second < kTrails + kTrailCount) {
    return first + (second - kTrails);
  }
  const auto entry = compose_.find({first, second});
  return entry == compose_.end() ? 0 : entry->second;
}

void UnicodeTables::append_lower(char32_t c, std::u32string& out) const {
  const auto entry = lower_.find(c);
  if (entry == lower_.end()) {
    out.push_back(c);
  } else {
    out += entry->second;
  }
}

DecodedCharacter decoded_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return decoded_at(text, begin);
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t value) { out.push_back(static_cast<char>(value)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

namespace {
/// Offset of the first byte from `at` on that is not ASCII, or the size.
std::size_t past_ascii(std::string_view text, std::size_t at) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080U;
  while (at + sizeof(std::uint64_t) <= text.size()) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, text.data() + at, sizeof(eight));
    if ((eight & kHighBits) != 0) break;
    at += sizeof(eight);
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}
}  // namespace

bool is_ascii(std::string_view text) { return past_ascii(text, 0) == text.size(); }

std::size_t first_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while ((at = past_ascii(text, at)) < text.size()) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

}  // namespace isthmus
