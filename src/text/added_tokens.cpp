// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "isthmus/errors.h"
#include "text/unicode.h"

namespace isthmus {
namespace {

constexpr std::size_t kBytes = 256;

std::size_t first_byte(std::string_view text) { return static_cast<unsigned char>(text[0]); }

std::size_t byte_pair(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]) * kBytes + static_cast<unsigned char>(text[at + 1]);
}

std::uint16_t classes_of(char32_t c) { return UnicodeTables::get().classes(c); }

std::size_t spaces_begin(std::string_view text, std::size_t end) {
  while (end > 0) {
    const DecodedCharacter c = decoded_before(text, end);
    if ((classes_of(c.value) & kSpace) == 0) break;
    end -= c.bytes;
  }
  return end;
}

std::size_t spaces_end(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const DecodedCharacter c = decoded_at(text, begin);
    if ((classes_of(c.value) & kSpace) == 0) break;
    begin += c.bytes;
  }
  return begin;
}

bool is_inside_word(std::string_view text, std::size_t begin, std::size_t end) {
  const auto is_word = [](char32_t c) { return (classes_of(c) & kWordCharacter) != 0; };
  return (begin > 0 && is_word(decoded_before(text, begin).value)) ||
         (end < text.size() && is_word(decoded_at(text, end).value));
}

}  // namespace

TokenFinder::TokenFinder(std::vector<AddedToken> tokens, const std::string& label)
    : tokens_(std::move(tokens)) {
  if (tokens_.empty()) return;
  std::ranges::sort(tokens_, [](const AddedToken& a, const AddedToken& b) {
    if (a.sought[0] != b.sought[0]) return first_byte(a.sought) < first_byte(b.sought);
    if (a.sought.size() != b.sought.size()) return a.sought.size() > b.sought.size();
    return a.sought < b.sought;
  });
  by_byte_.assign(kBytes + 1, 0);
  pairs_.assign(kBytes * kBytes, false);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& sought = tokens_[i].sought;
    if (i > 0 && sought == tokens_[i - 1].sought) {
      throw SystemError(fmt::format(
          "{}: the added tokens \"{}\" and \"{}\" both stand for the text \"{}\"; remove one",
          label, tokens_[i - 1].content, tokens_[i].content, sought));
    }
    ++by_byte_[first_byte(sought) + 1];
    for (std::size_t second = 0; second < kBytes; ++second) {
      if (sought.size() == 1) pairs_[first_byte(sought) * kBytes + second] = true;
    }
    if (sought.size() > 1) pairs_[byte_pair(sought, 0)] = true;
  }
  for (std::size_t byte = 0; byte < kBytes; ++byte) by_byte_[byte + 1] += by_byte_[byte];
}

const AddedToken* TokenFinder::token_at(std::string_view text, std::size_t at) const {
  if (at + 1 < text.size() && !pairs_[byte_pair(text, at)]) return nullptr;
  const std::size_t byte = static_cast<unsigned char>(text[at]);
  for (std::uint32_t i = by_byte_[byte]; i < by_byte_[byte + 1]; ++i) {
    if (text.substr(at).starts_with(tokens_[i].sought)) return &tokens_[i];
  }
  return nullptr;
}

std::vector<TokenFinder::Stretch> TokenFinder::stretches(std::string_view text) const {
  std::vector<Stretch> found;
  std::size_t covered = 0;
  if (!tokens_.empty()) {
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* const token = token_at(text, at);
      if (token == nullptr) {
        ++at;
        continue;
      }
      std::size_t begin = at;
      std::size_t end = at + token->sought.size();
      at = end;
      if (token->single_word && is_inside_word(text, begin, end)) continue;
      if (token->lstrip) begin = std::max(spaces_begin(text, begin), covered);
      if (token->rstrip) end = spaces_end(text, end);
      if (covered < begin) found.push_back({covered, begin, {}});
      found.push_back({begin, end, token->id});
      covered = end;
    }
  }
  if (covered != text.size()) found.push_back({covered, text.size(), {}});
  return found;
}

bool TokenFinder::parts_at_newline() const {
  return std::ranges::none_of(tokens_, [](const AddedToken& token) {
    return token.lstrip || token.sought.find('\n') != std::string::npos;
  });
}

AddedTokens::AddedTokens(const TokenizerPart& part, const TextModel& model,
                         const Normalizer& normalizer) {
  if (part.is_null()) return;
  std::vector<AddedToken> raw, normalized;
  auto next = static_cast<std::uint32_t>(model.tokens());
  for (const TokenizerPart& each : part.elements()) {
    AddedToken token{.content = each.at("content").text(),
                     .sought = {},
                     .id = each.at("id").id(),
                     .single_word = each.boolean_or("single_word", false),
                     .lstrip = each.boolean_or("lstrip", false),
                     .rstrip = each.boolean_or("rstrip", false),
                     .normalized = each.boolean_or("normalized", true),
                     .special = each.boolean_or("special", false)};
    if (token.content.empty() || tokens_.contains(token.content)) {
      each.bad(fmt::format("the token \"{}\" is empty or there before", token.content));
    }
    const std::optional<std::uint32_t> of_model = model.id_of(token.content);
    const std::uint32_t expected = of_model ? *of_model : next++;
    if (token.id != expected) {
      each.bad(
          fmt::format("the token \"{}\" says id {}, and `tokenizers` gives it {}: the file does "
                      "not say what its ids are",
                      token.content, token.id, expected));
    }
    token.sought = token.normalized ? normalizer.apply(token.content) : token.content;
    if (token.sought.empty()) each.bad("the normalizer leaves nothing of the token");
    id_bound_ = std::max(id_bound_, token.id + 1);
    contents_[token.id] = token.content;
    tokens_[token.content] = token;
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }
  raw_ = TokenFinder(std::move(raw), part.label());
  normalized_ = TokenFinder(std::move(normalized), part.label());
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto entry = tokens_.find(content);
  return entry == tokens_.end() ? nullptr : &entry->second;
}

const AddedToken* AddedTokens::of_id(std::uint32_t id) const {
  const auto entry = contents_.find(id);
  return entry == contents_.end() ? nullptr : find(entry->second);
}

bool AddedTokens::is_special(std::string_view content) const {
  const AddedToken* const token = find(content);
  return token != nullptr && token->special;
}

}  // namespace isthmus
