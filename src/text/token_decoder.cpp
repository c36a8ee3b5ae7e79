// SPDX-License-Identifier: Apache-2.0
#include "text/token_decoder.h"

#include <fmt/format.h>

#include <charconv>
#include <numeric>
#include <optional>

#include "core/base/utf8_text.h"
#include "text/byte_alphabet.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"

namespace isthmus {
namespace {

constexpr std::string_view kDecoders =
    "ByteLevel, Metaspace, Replace of a text, ByteFallback, Fuse, Strip, Sequence";
constexpr std::string_view kReplacement = "\ufffd";

/// Bytes of the longest start of a code point at the front of `bytes` that is not whole: at
/// least 1.
std::size_t broken_length(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = at(0);
  const std::size_t whole = first >= 0xF0 && first <= 0xF4  ? 4
                            : first >= 0xE0 && first < 0xF0 ? 3
                                                            : 1;
  if (whole == 1 || bytes.size() < 2) return 1;
  // The second byte's range depends on the first: no overlong forms, no surrogates, no more than
  // U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (at(1) < low || at(1) > high) return 1;
  if (whole == 4 && bytes.size() > 2 && at(2) >= 0x80 && at(2) <= 0xBF) return 3;
  return 2;
}

std::string bytes_of_tokens(const std::vector<std::string>& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_token(token).value_or(token);
  return bytes;
}

/// The byte of "<0xE2>".
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return {};
  return static_cast<char>(byte);
}

std::vector<std::string> without_fallback(const std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (invalid_utf8(bytes) == std::string::npos) {
      out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), std::string(kReplacement));
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const std::optional<char> byte = fallback_byte(token)) {
      bytes.push_back(*byte);
    } else {
      flush();
      out.push_back(token);
    }
  }
  flush();
  return out;
}

std::string stripped(std::string_view token, std::string_view character, std::uint32_t start,
                     std::uint32_t stop) {
  for (; start > 0 && token.starts_with(character); --start) token.remove_prefix(character.size());
  for (; stop > 0 && token.ends_with(character); --stop) token.remove_suffix(character.size());
  return std::string(token);
}

}  // namespace

std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t valid = std::min(first_invalid_utf8(bytes), bytes.size());
    text.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    text.append(kReplacement);
    bytes.remove_prefix(broken_length(bytes));
  }
  return text;
}

TokenDecoder::TokenDecoder(const TokenizerPart& part) {
  if (part.is_null()) return;
  none_ = false;
  add(part);
}

void TokenDecoder::add(const TokenizerPart& part) {
  const std::string type = part.type();
  if (type == "Sequence") {
    for (const TokenizerPart& each : part.at("decoders").elements()) add(each);
  } else if (type == "ByteLevel") {
    steps_.push_back({Kind::kByteLevel, {}, {}});
  } else if (type == "Metaspace") {
    const MetaspaceFields fields = metaspace_fields(part);
    steps_.push_back({Kind::kMetaspace, {}, fields.mark, fields.scheme != "never"});
  } else if (type == "Replace") {
    steps_.push_back({Kind::kReplace, text_pattern(part), part.at("content").text()});
  } else if (type == "ByteFallback") {
    steps_.push_back({Kind::kByteFallback, {}, {}});
  } else if (type == "Fuse") {
    steps_.push_back({Kind::kFuse, {}, {}});
  } else if (type == "Strip") {
    const std::string content = part.at("content").text();
    if (content.empty()) part.bad("content is empty");
    steps_.push_back(
        {Kind::kStrip, {}, content, false, part.at("start").id(), part.at("stop").id()});
  } else {
    part.unsupported(fmt::format("the decoder {}", type), kDecoders);
  }
}

void TokenDecoder::take_step(const Step& step, std::vector<std::string>& tokens) {
  switch (step.kind) {
    case Kind::kByteLevel:
      tokens = {lossy_utf8(bytes_of_tokens(tokens))};
      return;
    case Kind::kMetaspace:
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const bool drops = i == 0 && step.drops_first;
        tokens[i] = with_replaced(tokens[i], step.content, drops ? "" : " ");
      }
      return;
    case Kind::kReplace:
      for (std::string& token : tokens) token = with_replaced(token, step.pattern, step.content);
      return;
    case Kind::kByteFallback:
      tokens = without_fallback(tokens);
      return;
    case Kind::kFuse:
      tokens = {std::accumulate(tokens.begin(), tokens.end(), std::string())};
      return;
    case Kind::kStrip:
      for (std::string& token : tokens) {
        token = stripped(token, step.content, step.start, step.stop);
      }
      return;
  }
}

std::string TokenDecoder::text_of(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) take_step(step, tokens);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (none_ && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace isthmus
