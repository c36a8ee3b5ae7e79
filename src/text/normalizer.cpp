// SPDX-License-Identifier: Apache-2.0
#include "text/normalizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/normal_forms.h"
#include "text/unicode.h"

namespace isthmus {
namespace {

constexpr std::string_view kNormalizers =
    "NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Lowercase, StripAccents, BertNormalizer, Replace of a "
    "text or of the expression \" {2,}\", Prepend, Strip, Sequence";
constexpr std::string_view kSpaceRuns = " {2,}";  // a regular expression

std::string lowered(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::u32string points;
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter c = decoded_at(text, at);
    points.clear();
    UnicodeTables::get().append_lower(c.value, points);
    for (const char32_t point : points) append_utf8(out, point);
    at += c.bytes;
  }
  return out;
}

/// What Nmt takes out of a text: control characters that are no white space.
bool is_dropped(char32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
         c == 0x8F || c == 0x9F;
}

/// What Nmt makes a space.
bool becomes_space(char32_t c) {
  constexpr char32_t kSpaces[] = {0x09,   0x0A,   0x0C,   0x0D,   0x1680, 0x200B, 0x200C, 0x200D,
                                  0x200E, 0x200F, 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD};
  return std::ranges::find(kSpaces, c) != std::end(kSpaces);
}

/// Rebuilds the text from `append(character, its bytes, out)`, which returns false for a character
/// that goes.
template <typename Append>
void rebuild(TextPiece& piece, const Append& append) {
  std::string out;
  out.reserve(piece.text.size());
  for (std::size_t at = 0; at < piece.text.size();) {
    const DecodedCharacter c = decoded_at(piece.text, at);
    const bool stays = append(c.value, std::string_view(piece.text).substr(at, c.bytes), out);
    if (!stays && out.empty()) piece.at_start = false;
    at += c.bytes;
  }
  piece.text = std::move(out);
}

void apply_nmt(TextPiece& piece) {
  rebuild(piece, [](char32_t c, std::string_view bytes, std::string& out) {
    if (is_dropped(c)) return false;
    out.append(becomes_space(c) ? " " : bytes);
    return true;
  });
}

void drop(TextPiece& piece, unsigned dropped) {
  rebuild(piece, [dropped](char32_t c, std::string_view bytes, std::string& out) {
    if ((UnicodeTables::get().classes(c) & dropped) != 0) return false;
    out.append(bytes);
    return true;
  });
}

/// clean_text of BertNormalizer.
void apply_bert_clean(TextPiece& piece) {
  rebuild(piece, [](char32_t c, std::string_view bytes, std::string& out) {
    const unsigned classes = UnicodeTables::get().classes(c);
    if ((classes & kBertDropped) != 0) return false;
    out.append((classes & kSpace) != 0 ? " " : bytes);
    return true;
  });
}

/// What handle_chinese_chars of BertNormalizer puts between spaces.
bool is_bert_han(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kHan[] = {
      {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
      {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return std::ranges::any_of(
      kHan, [c](const auto& range) { return c >= range.first && c <= range.second; });
}

void apply_bert_han(TextPiece& piece) {
  rebuild(piece, [](char32_t c, std::string_view bytes, std::string& out) {
    const bool han = is_bert_han(c);
    if (han) out.push_back(' ');
    out.append(bytes);
    if (han) out.push_back(' ');
    return true;
  });
}

std::string with_runs_replaced(std::string_view text, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_not_of(' ', at), text.size());
    if (end - at >= 2) {
      out.append(content);
      at = end;
    } else {
      out.push_back(text[at++]);
    }
  }
  return out;
}

bool is_space(char32_t c) { return (UnicodeTables::get().classes(c) & kSpace) != 0; }

void strip(TextPiece& piece, bool left, bool right) {
  std::string_view text = piece.text;
  while (left && !text.empty()) {
    const DecodedCharacter c = decoded_at(text, 0);
    if (!is_space(c.value)) break;
    text.remove_prefix(c.bytes);
    piece.at_start = false;
  }
  while (right && !text.empty()) {
    const DecodedCharacter c = decoded_before(text, text.size());
    if (!is_space(c.value)) break;
    text.remove_suffix(c.bytes);
  }
  piece.text = std::string(text);
}

}  // namespace

std::string text_pattern(const TokenizerPart& part) {
  const TokenizerPart pattern = part.at("pattern");
  if (pattern.has("Regex")) {
    pattern.unsupported(fmt::format("the regular expression {}", pattern.at("Regex").text()),
                        "a text");
  }
  const std::string text = pattern.at("String").text();
  if (text.empty()) pattern.bad("is empty");
  return text;
}

std::string with_replaced(std::string_view text, std::string_view pattern,
                          std::string_view content) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  while (true) {
    const std::size_t found = text.find(pattern);
    out.append(text.substr(0, found));
    if (found == std::string_view::npos) return out;
    out.append(content);
    text.remove_prefix(found + pattern.size());
  }
}

Normalizer::Normalizer(const TokenizerPart& part) {
  if (!part.is_null()) add(part);
}

void Normalizer::add(const TokenizerPart& part) {
  const std::string type = part.type();
  if (type == "Sequence") {
    for (const TokenizerPart& each : part.at("normalizers").elements()) add(each);
  } else if (type == "NFC") {
    steps_.push_back({Kind::kNfc, {}, {}});
  } else if (type == "NFD") {
    steps_.push_back({Kind::kNfd, {}, {}});
  } else if (type == "NFKC") {
    steps_.push_back({Kind::kNfkc, {}, {}});
  } else if (type == "NFKD") {
    steps_.push_back({Kind::kNfkd, {}, {}});
  } else if (type == "Nmt") {
    steps_.push_back({Kind::kNmt, {}, {}});
  } else if (type == "Precompiled") {
    steps_.push_back({Kind::kPrecompiled,
                      {},
                      {},
                      false,
                      false,
                      std::make_shared<CharacterMap>(part.at("precompiled_charsmap"))});
  } else if (type == "StripAccents") {
    steps_.push_back({Kind::kStripAccents, {}, {}});
  } else if (type == "BertNormalizer") {
    const bool lowers = part.at("lowercase").boolean();
    if (part.at("clean_text").boolean()) steps_.push_back({Kind::kBertClean, {}, {}});
    if (part.at("handle_chinese_chars").boolean()) steps_.push_back({Kind::kBertHan, {}, {}});
    if (part.boolean_or("strip_accents", lowers)) {
      steps_.push_back({Kind::kNfd, {}, {}});
      steps_.push_back({Kind::kBertStripAccents, {}, {}});
    }
    if (lowers) steps_.push_back({Kind::kLowercase, {}, {}});
  } else if (type == "Lowercase") {
    steps_.push_back({Kind::kLowercase, {}, {}});
  } else if (type == "Replace" && part.at("pattern").has("Regex") &&
             part.at("pattern").at("Regex").text() == kSpaceRuns) {
    steps_.push_back({Kind::kReplaceRuns, "  ", part.at("content").text()});
  } else if (type == "Replace") {
    steps_.push_back({Kind::kReplace, text_pattern(part), part.at("content").text()});
  } else if (type == "Prepend") {
    steps_.push_back({Kind::kPrepend, {}, part.at("prepend").text()});
  } else if (type == "Strip") {
    steps_.push_back(
        {Kind::kStrip, {}, {}, part.at("strip_left").boolean(), part.at("strip_right").boolean()});
  } else {
    part.unsupported(fmt::format("the normalizer {}", type), kNormalizers);
  }
}

void Normalizer::take_step(const Step& step, TextPiece& piece, bool continues) {
  switch (step.kind) {
    case Kind::kNfc:
      piece.text = normalized(piece.text, NormalForm::kNfc);
      return;
    case Kind::kNfd:
      piece.text = normalized(piece.text, NormalForm::kNfd);
      return;
    case Kind::kNfkc:
      piece.text = normalized(piece.text, NormalForm::kNfkc);
      return;
    case Kind::kNfkd:
      piece.text = normalized(piece.text, NormalForm::kNfkd);
      return;
    case Kind::kNmt:
      apply_nmt(piece);
      return;
    case Kind::kPrecompiled:
      piece.text = step.map->apply(piece.text);
      return;
    case Kind::kStripAccents:
      drop(piece, kAccent);
      return;
    case Kind::kBertClean:
      apply_bert_clean(piece);
      return;
    case Kind::kBertHan:
      apply_bert_han(piece);
      return;
    case Kind::kBertStripAccents:
      drop(piece, kBertAccent);
      return;
    case Kind::kLowercase:
      piece.text = lowered(piece.text);
      return;
    case Kind::kReplace:
      // A replacement of several characters belongs to the last of them.
      if (piece.text.starts_with(step.pattern) &&
          (step.content.empty() || decoded_at(step.pattern, 0).bytes < step.pattern.size())) {
        piece.at_start = false;
      }
      piece.text = with_replaced(piece.text, step.pattern, step.content);
      return;
    case Kind::kReplaceRuns:
      if (piece.text.starts_with(step.pattern)) piece.at_start = false;
      piece.text = with_runs_replaced(piece.text, step.content);
      return;
    case Kind::kPrepend:
      if (!piece.text.empty() && !continues) piece.text.insert(0, step.content);
      return;
    case Kind::kStrip:
      strip(piece, step.left, step.right);
      return;
  }
}

void Normalizer::apply(TextPiece& piece, bool continues) const {
  for (const Step& step : steps_) take_step(step, piece, continues);
}

std::string Normalizer::apply(std::string_view text) const {
  TextPiece piece{std::string(text)};
  apply(piece);
  return std::move(piece.text);
}

bool Normalizer::may_be_cut() const {
  return std::ranges::all_of(steps_, [](const Step& step) {
    switch (step.kind) {
      case Kind::kStrip:
      case Kind::kNmt:
      case Kind::kPrecompiled:
      case Kind::kStripAccents:
      case Kind::kBertClean:
      case Kind::kBertHan:
      case Kind::kBertStripAccents:
      case Kind::kReplaceRuns:
        return false;
      case Kind::kReplace:
        return step.pattern == " ";
      default:
        return true;
    }
  });
}

bool Normalizer::keeps_characters() const {
  return std::ranges::all_of(steps_, [](const Step& step) {
    return step.kind == Kind::kPrepend || (step.kind == Kind::kReplace && step.pattern == " ");
  });
}

}  // namespace isthmus
