// SPDX-License-Identifier: Apache-2.0
#include "text/word_scanner.h"

#include <array>

#include "text/unicode.h"

namespace isthmus {
namespace {

constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<std::uint8_t, 128> ascii_classes() {
  std::array<std::uint8_t, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    const bool space = c == ' ' || (c >= 9 && c <= 13);
    const bool number = c >= '0' && c <= '9';
    unsigned found = 0;
    if (letter) found = kLetter;
    if (space) found = kSpace;
    if (number) found = kNumber;
    classes[static_cast<std::size_t>(c)] = static_cast<std::uint8_t>(found);
  }
  return classes;
}
constexpr std::array<std::uint8_t, 128> kAsciiClasses = ascii_classes();
constexpr unsigned kClassed = kLetter | kNumber | kSpace;

/// A place in the text. letters: the classes that count as letters.
class Cursor {
 public:
  Cursor(std::string_view text, std::size_t at, unsigned letters)
      : text_(text), at_(at), letters_(letters) {}
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] bool over() const { return at_ >= text_.size(); }
  /// Letter, number or space of the character here, or 0; its bytes in `bytes`. REQUIRES: !over().
  [[nodiscard]] unsigned class_here(std::size_t& bytes) const {
    const auto first = static_cast<unsigned char>(text_[at_]);
    if (first < 0x80) {
      bytes = 1;
      return kAsciiClasses[first];
    }
    const DecodedCharacter c = decoded_at(text_, at_);
    bytes = c.bytes;
    const unsigned classes = tables_->classes(c.value);
    if ((classes & letters_) != 0) return kLetter;
    return classes & kClassed;
  }
  void skip(std::size_t bytes) { at_ += bytes; }
  /// Passes at most `most` characters of the class; the class 0 has none.
  void run(unsigned wanted, std::size_t most = static_cast<std::size_t>(-1)) {
    std::size_t bytes = 0;
    for (; most > 0 && !over() && class_here(bytes) == wanted; --most) at_ += bytes;
  }
  void run_of_newlines() {
    while (!over() && (text_[at_] == '\r' || text_[at_] == '\n')) ++at_;
  }

 private:
  std::string_view text_;
  std::size_t at_;
  unsigned letters_;
  const UnicodeTables* tables_ = &UnicodeTables::get();
};

/// Bytes of 's, 't, 're, 've, 'm, 'll or 'd at `at`, or 0. `any_case`: in capitals too, and the
/// long s, which folds to s.
std::size_t contraction_length(std::string_view text, std::size_t at, bool any_case) {
  const auto letter = [&](std::size_t i) -> char {
    if (at + i >= text.size()) return '\0';
    const char c = text[at + i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      return any_case && text.substr(at + 1).starts_with("\u017f") ? 3 : 0;
  }
}

/// \s+(?!\S)|\s+ : all of a run at the text's end, else all but its last character.
std::size_t end_of_spaces(std::string_view text, std::size_t begin, std::size_t end) {
  if (end == text.size()) return end;
  const std::size_t last = end - decoded_before(text, end).bytes;
  return last > begin ? last : end;
}

std::size_t gpt2_word_end(std::string_view text, std::size_t at) {
  if (text[at] == '\'') {
    if (const std::size_t bytes = contraction_length(text, at, false)) return at + bytes;
  }
  Cursor cursor(text, at, kLetter);
  std::size_t bytes = 0;
  unsigned here = cursor.class_here(bytes);
  if (text[at] == ' ') {
    Cursor next(text, at + 1, kLetter);
    if (!next.over() && next.class_here(bytes) != kSpace) {
      cursor = next;
      here = cursor.class_here(bytes);
    }
  }
  cursor.run(here);
  return here == kSpace ? end_of_spaces(text, at, cursor.at()) : cursor.at();
}

/// \s*[\r\n]+|\s+(?!\S)|\s+
std::size_t llama3_spaces_end(std::string_view text, std::size_t at) {
  Cursor cursor(text, at, kLetter);
  cursor.run(kSpace);
  const std::size_t newline = text.substr(at, cursor.at() - at).find_last_of("\r\n");
  return newline != std::string_view::npos ? at + newline + 1
                                           : end_of_spaces(text, at, cursor.at());
}

std::size_t llama3_word_end(std::string_view text, std::size_t at, std::size_t most_digits,
                            unsigned letters) {
  if (text[at] == '\'') {
    if (const std::size_t bytes = contraction_length(text, at, true)) return at + bytes;
  }
  Cursor cursor(text, at, letters);
  std::size_t bytes = 0;
  const unsigned here = cursor.class_here(bytes);
  if (here == kLetter) {
    cursor.run(kLetter);
    return cursor.at();
  }
  if (here == kNumber) {
    cursor.run(kNumber, most_digits);
    return cursor.at();
  }
  Cursor next(text, at + bytes, letters);
  std::size_t next_bytes = 0;
  const bool more = !next.over();
  const unsigned behind = more ? next.class_here(next_bytes) : 0;
  if (more && behind == kLetter && text[at] != '\r' && text[at] != '\n') {
    next.run(kLetter);
    return next.at();
  }
  if (here == 0 || (text[at] == ' ' && more && behind == 0)) {
    if (here != 0) cursor.skip(1);
    cursor.run(0);
    cursor.run_of_newlines();
    return cursor.at();
  }
  return llama3_spaces_end(text, at);
}

}  // namespace

std::optional<WordPattern> word_pattern_of(std::string_view regular_expression) {
  for (const WordPattern pattern :
       {WordPattern::kGpt2, WordPattern::kLlama3, WordPattern::kQwen2, WordPattern::kQwen35}) {
    if (regular_expression == regular_expression_of(pattern)) return pattern;
  }
  return {};
}

std::string_view regular_expression_of(WordPattern pattern) {
  switch (pattern) {
    case WordPattern::kGpt2:
      return kGpt2Expression;
    case WordPattern::kLlama3:
      return kLlama3Expression;
    case WordPattern::kQwen2:
      return kQwen2Expression;
    case WordPattern::kQwen35:
      return kQwen35Expression;
  }
  return {};
}

std::size_t word_length(std::string_view text, std::size_t at, WordPattern pattern) {
  constexpr std::size_t kDigitsOfLlama3 = 3;
  if (pattern == WordPattern::kGpt2) return gpt2_word_end(text, at) - at;
  // A mark before letters or marks is both what \p{L} may follow and the first of them.
  unsigned letters = kLetter;
  if (pattern == WordPattern::kQwen35) letters |= kCombiningMark;
  return llama3_word_end(text, at, pattern == WordPattern::kLlama3 ? kDigitsOfLlama3 : 1, letters) -
         at;
}

}  // namespace isthmus
