// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/followed_links.h"
#include "core/base/json_input.h"
#include "core/base/utf8_text.h"
#include "isthmus/errors.h"
#include "text/bpe_model.h"
#include "text/unicode.h"
#include "text/unigram_model.h"
#include "text/word_cache.h"

namespace isthmus {
namespace {

constexpr std::string_view kTokenizerFile = "tokenizer.json";

std::unique_ptr<const TextModel> model_of(const TokenizerPart& part, bool byte_level) {
  // Files of the first versions do not name the type.
  const std::string type = part.has("type") ? part.type() : part.has("merges") ? "BPE" : "";
  if (type == "BPE") return std::make_unique<BpeModel>(part, byte_level);
  if (type == "Unigram" && !byte_level) return std::make_unique<UnigramModel>(part);
  part.unsupported(type.empty()        ? "a model without a type"
                   : type == "Unigram" ? "the model Unigram behind ByteLevel"
                                       : fmt::format("the model {}", type),
                   "BPE, Unigram");
}

constexpr char32_t kMetaspace = 0x2581;

bool is_plain(char32_t c) {
  return (UnicodeTables::get().classes(c) & kSpace) == 0 && c != kMetaspace;
}

/// Whether a whole character that is no space ends `text`, which may be no UTF-8.
bool ends_plainly(std::string_view text) {
  constexpr std::size_t kLongest = 4;
  for (std::size_t bytes = 1; bytes <= std::min(kLongest, text.size()); ++bytes) {
    const std::string_view last = text.substr(text.size() - bytes);
    if (utf8_length(last) == bytes) return is_plain(decoded_at(last, 0).value);
  }
  return false;
}

/// The character that begins `text`, where it is no space and `text` is UTF-8 there; else 0.
char32_t plain_beginning(std::string_view text) {
  if (text.empty() || utf8_length(text) == 0) return 0;
  const char32_t first = decoded_at(text, 0).value;
  return is_plain(first) ? first : 0;
}

}  // namespace

Tokenizer::Tokenizer(std::string_view json, const std::string& label) {
  const nlohmann::json file = parse_json(json, label);
  const nlohmann::json none;
  const TokenizerPart part(file, label);
  const auto at = [&](const char* key) {
    return part.has(key) ? TokenizerPart(file[key], fmt::format("{}: {}", label, key))
                         : TokenizerPart(none, fmt::format("{}: {}", label, key));
  };
  if (!part.has("model")) part.bad("lacks \"model\": it is no tokenizer.json");
  normalizer_ = Normalizer(at("normalizer"));
  pre_tokenizer_ = PreTokenizer(at("pre_tokenizer"));
  model_ = model_of(at("model"), pre_tokenizer_.byte_level());
  added_ = AddedTokens(at("added_tokens"), *model_, normalizer_);
  decoder_ = TokenDecoder(at("decoder"));
  vocabulary_ = std::max(model_->id_bound(), added_.id_bound());
  if (vocabulary_ == 0) part.bad("has no tokens");
  read_post_processor(at("post_processor"));
  may_be_cut_ = normalizer_.may_be_cut() && pre_tokenizer_.may_be_cut() &&
                added_.in_raw_text().parts_at_newline() &&
                added_.in_normalized_text().parts_at_newline();
}

Tokenizer Tokenizer::open(const Storage& storage, const std::filesystem::path& path) {
  const bool folder = followed_kind(storage, path) == FileKind::kDirectory;
  const std::filesystem::path file = folder ? path / kTokenizerFile : path;
  if (folder && storage.kind(file) == FileKind::kAbsent) {
    throw SystemError(fmt::format(
        "{}: has no {}: name a folder that has one (transformers' save_pretrained writes it)",
        path.string(), kTokenizerFile));
  }
  const MappedFile json = storage.map(file);
  const auto bytes = json.bytes();
  return {std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
          file.string()};
}

void Tokenizer::read_post_processor(const TokenizerPart& part) {
  if (part.is_null()) return;
  const std::string type = part.type();
  if (type == "Sequence") {
    for (const TokenizerPart& each : part.at("processors").elements()) read_post_processor(each);
  } else if (type == "TemplateProcessing") {
    add_template(part);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    const auto id_of_pair = [&](const TokenizerPart& pair) {
      const std::vector<TokenizerPart> both = pair.elements();
      if (both.size() != 2) pair.bad("is no pair of a token and its id");
      return known_id(both[1], both[0].text());
    };
    before_.insert(before_.begin(), id_of_pair(part.at("cls")));
    behind_.push_back(id_of_pair(part.at("sep")));
  } else if (type != "ByteLevel") {  // ByteLevel moves offsets alone
    part.unsupported(fmt::format("the post-processor {}", type),
                     "TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel, Sequence");
  }
}

std::uint32_t Tokenizer::known_id(const TokenizerPart& part, const std::string& token) const {
  const std::uint32_t id = part.id();
  if (id < vocabulary_) return id;
  part.bad(
      fmt::format("the id {} of \"{}\" is beyond the vocabulary of {}", id, token, vocabulary_));
}

void Tokenizer::add_template(const TokenizerPart& part) {
  std::vector<std::uint32_t> before, behind;
  bool seen = false;
  for (const TokenizerPart& piece : part.at("single").elements()) {
    if (piece.has("Sequence")) {
      if (piece.at("Sequence").at("id").text() != "A" || seen) {
        piece.unsupported("a template of another text than one", "one sequence A");
      }
      seen = true;
      continue;
    }
    const std::string token = piece.at("SpecialToken").at("id").text();
    const TokenizerPart ids = part.at("special_tokens").at(token.c_str()).at("ids");
    for (const TokenizerPart& each : ids.elements()) {
      (seen ? behind : before).push_back(known_id(each, token));
    }
  }
  if (!seen) part.unsupported("a template without a text", "one sequence A");
  before_.insert(before_.begin(), before.begin(), before.end());
  behind_.insert(behind_.end(), behind.begin(), behind.end());
}

std::optional<std::uint32_t> Tokenizer::id_of(std::string_view token) const {
  if (const AddedToken* const added = added_.find(token)) return added->id;
  return model_->id_of(token);
}

std::optional<std::string> Tokenizer::token_of(std::uint32_t id) const {
  if (const AddedToken* const added = added_.of_id(id)) return added->sought;
  const std::string* const token = model_->token_of(id);
  return token ? std::optional(*token) : std::nullopt;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const std::uint32_t id : ids) {
    std::optional<std::string> token = token_of(id);
    if (!token || (skip_special && added_.is_special(*token))) continue;
    tokens.push_back(*std::move(token));
  }
  return decoder_.text_of(std::move(tokens));
}

/// A newline between two characters that are no spaces is a word, or the end of one, whatever
/// stands around it.
std::optional<std::size_t> Tokenizer::last_cut(std::string_view text) const {
  if (!may_be_cut_) return {};
  for (std::size_t at = text.rfind('\n'); at != std::string_view::npos && at > 0;
       at = text.rfind('\n', at - 1)) {
    const char32_t next = plain_beginning(text.substr(at + 1));
    if (next != 0 && ends_plainly(text.substr(0, at)) &&
        (pre_tokenizer_.parts_at_newline() ||
         (normalizer_.keeps_characters() && model_->parts_at_newline(next)))) {
      return at + 1;
    }
  }
  return {};
}

struct TextEncoder::State {
  std::unique_ptr<TextModel::Scratch> scratch;
  WordCache words;
};

TextEncoder::TextEncoder(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), state_(std::make_unique<State>()) {
  state_->scratch = tokenizer.model_->make_scratch();
}

TextEncoder::~TextEncoder() = default;
TextEncoder::TextEncoder(TextEncoder&&) noexcept = default;

void TextEncoder::encode(std::string_view text, const EncodeOptions& options,
                         std::vector<std::uint32_t>& ids) {
  if (const std::size_t wrong = first_invalid_utf8(text); wrong != std::string_view::npos) {
    throw SystemError(
        fmt::format("byte {} is not UTF-8: convert the text with iconv -t UTF-8", wrong));
  }
  if (options.special_tokens) {
    ids.insert(ids.end(), tokenizer_.before_.begin(), tokenizer_.before_.end());
  }
  const TokenFinder& finder = tokenizer_.added_.in_raw_text();
  for (const TokenFinder::Stretch& stretch : finder.stretches(text)) {
    if (stretch.id) {
      ids.push_back(*stretch.id);
    } else {
      encode_raw(text.substr(stretch.begin, stretch.end - stretch.begin),
                 stretch.begin == 0 && !options.continues, stretch.begin == 0 && options.continues,
                 ids);
    }
  }
  if (options.special_tokens) {
    ids.insert(ids.end(), tokenizer_.behind_.begin(), tokenizer_.behind_.end());
  }
}

void TextEncoder::encode_raw(std::string_view text, bool at_start, bool continues,
                             std::vector<std::uint32_t>& ids) {
  const std::optional<WordPattern> pattern = tokenizer_.pre_tokenizer_.only_pattern();
  const TokenFinder& finder = tokenizer_.added_.in_normalized_text();
  if (tokenizer_.normalizer_.empty() && pattern && finder.empty()) {
    encode_words(text, *pattern, ids);
    return;
  }
  TextPiece piece{std::string(text), at_start};
  tokenizer_.normalizer_.apply(piece, continues);
  if (finder.empty()) {
    encode_piece(piece, continues, ids);
    return;
  }
  for (const TokenFinder::Stretch& stretch : finder.stretches(piece.text)) {
    if (stretch.id) {
      ids.push_back(*stretch.id);
    } else {
      encode_piece({piece.text.substr(stretch.begin, stretch.end - stretch.begin),
                    piece.at_start && stretch.begin == 0},
                   continues && stretch.begin == 0, ids);
    }
  }
}

void TextEncoder::encode_piece(const TextPiece& piece, bool continues,
                               std::vector<std::uint32_t>& ids) {
  if (const auto pattern = tokenizer_.pre_tokenizer_.only_pattern()) {
    encode_words(piece.text, *pattern, ids);
    return;
  }
  tokenizer_.pre_tokenizer_.split(piece, continues, [&](std::string_view word) {
    while (!word.empty()) {
      const std::size_t length = tokenizer_.model_->independent_prefix(word);
      encode_word(word.substr(0, length), ids);
      word.remove_prefix(length);
    }
  });
}

void TextEncoder::encode_words(std::string_view text, WordPattern pattern,
                               std::vector<std::uint32_t>& ids) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = word_length(text, at, pattern);
    encode_word(text.substr(at, length), ids);
    at += length;
  }
}

void TextEncoder::encode_word(std::string_view word, std::vector<std::uint32_t>& ids) {
  bool known = false;
  const std::span<const std::uint32_t> cached = state_->words.find(word, known);
  if (known) {
    ids.insert(ids.end(), cached.begin(), cached.end());
    return;
  }
  const std::size_t begin = ids.size();
  tokenizer_.model_->encode(word, *state_->scratch, ids);
  state_->words.put(word, std::span(ids).subspan(begin));
}

}  // namespace isthmus
