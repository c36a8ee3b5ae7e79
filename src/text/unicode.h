// SPDX-License-Identifier: Apache-2.0
// Characters as Hugging Face `tokenizers` classifies them: classes, lower case, decompositions. The
// tables are those of Unicode 16.0 as its regular expressions use them, and are checked against it
// on all code points (scripts/unicode-tables). Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isthmus {

/// Bits of `UnicodeTables::classes`.
enum CharacterClass : std::uint32_t {
  kLetter = 1,            // \p{L}
  kNumber = 2,            // \p{N}
  kSpace = 4,             // \s
  kWordCharacter = 8,     // \w of added tokens
  kDigit = 16,            // of the pre-tokenizer Digits
  kComposeUnsafe = 32,    // NFC may change it, or the character before it
  kDecomposeUnsafe = 64,  // the same for NFD
  kCompatComposeUnsafe = 128,
  kCompatDecomposeUnsafe = 256,
  kAccent = 512,          // what StripAccents takes out
  kCombiningMark = 1024,  // \p{M}
  kBertDropped = 2048,    // what clean_text of BertNormalizer takes out
  kBertAccent = 4096      // what strip_accents of BertNormalizer takes out
};

/// What a character is in a grapheme cluster: Grapheme_Cluster_Break, Extended_Pictographic and
/// Indic_Conjunct_Break in one.
enum class ClusterPart : std::uint8_t {
  kOther,
  kCarriageReturn,
  kLineFeed,
  kControl,
  kExtend,
  kConjunctExtend,
  kLinker,
  kJoiner,
  kSpacingMark,
  kPrepend,
  kRegionalIndicator,
  kPictographic,
  kConsonant,
  kLead,
  kVowel,
  kTrail,
  kLeadVowel,
  kLeadVowelTrail
};

class UnicodeTables {
 public:
  /// The one object; made at the first call.
  [[nodiscard]] static const UnicodeTables& get();

  [[nodiscard]] std::uint32_t classes(char32_t c) const {
    return blocks_[index_[c >> kBlockBits]][c & (kBlock - 1)];
  }
  [[nodiscard]] ClusterPart cluster_part(char32_t c) const {
    return static_cast<ClusterPart>(classes(c) >> kClusterShift);
  }
  /// Canonical combining class; 0 for most.
  [[nodiscard]] int combining_class(char32_t c) const;
  /// Appends the full canonical (or compatibility) decomposition of `c`, unordered, to `out`.
  void decompose(char32_t c, bool compatible, std::u32string& out) const;
  /// The character into which NFC composes `first` and `second`; 0: none.
  [[nodiscard]] char32_t compose(char32_t first, char32_t second) const;
  void append_lower(char32_t c, std::u32string& out) const;

 private:
  static constexpr int kBlockBits = 7;
  static constexpr int kClusterShift = 16;  // of the bits of a class
  static constexpr std::size_t kBlock = std::size_t{1} << kBlockBits;
  static constexpr std::size_t kBlocks = 0x110000 >> kBlockBits;
  using Block = std::array<std::uint32_t, kBlock>;

  UnicodeTables();
  void read_line(std::string_view line, std::vector<std::uint32_t>& classes);
  static void set_part(std::vector<std::uint32_t>& classes, char32_t c, ClusterPart part);
  static void read_parts(std::string_view line, std::vector<std::uint32_t>& classes);
  static void mark_parts(std::vector<std::uint32_t>& classes);
  void mark_unsafe(std::vector<std::uint32_t>& classes) const;
  void pack(const std::vector<std::uint32_t>& classes);

  std::array<std::uint16_t, kBlocks> index_{};
  std::vector<Block> blocks_;
  std::map<char32_t, int> combining_;
  std::map<char32_t, std::u32string> lower_, canonical_, compatible_;
  std::map<std::pair<char32_t, char32_t>, char32_t> compose_;
};

/// The code point at `at` and its length in bytes. REQUIRES: `text` is UTF-8 and `at` begins a code
/// point inside it.
struct DecodedCharacter {
  char32_t value;
  std::size_t bytes;
};
[[nodiscard]] inline DecodedCharacter decoded_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1FU) << 6 | (byte(1) & 0x3FU), 2};
  if (first < 0xF0) {
    return {(first & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
  }
  return {
      (first & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU),
      4};
}
/// The code point that ends at `end`. REQUIRES: `text` is UTF-8 and end > 0 ends a code point.
[[nodiscard]] DecodedCharacter decoded_before(std::string_view text, std::size_t end);
void append_utf8(std::string& out, char32_t c);

/// True if all bytes are ASCII.
[[nodiscard]] bool is_ascii(std::string_view text);
/// Offset of the first byte that is not UTF-8, or npos: `invalid_utf8`, fast over ASCII.
[[nodiscard]] std::size_t first_invalid_utf8(std::string_view text);

}  // namespace isthmus
