// SPDX-License-Identifier: Apache-2.0
#include "text/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "text/byte_alphabet.h"
#include "text/unicode.h"

namespace isthmus {
namespace {

constexpr std::uint32_t kNoMerge = 0xFFFFFFFF;
constexpr char32_t kMark = 0x2581;  // the metaspace
constexpr std::string_view kMarkText = "\u2581";
constexpr std::size_t kFew = 40;  // symbols of a word that are merged by looking at all of them

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32 | right;
}

std::uint64_t slot_of(std::uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15U;
  return pair ^ pair >> 31;
}

std::string fallback_token(unsigned byte) { return fmt::format("<0x{:02X}>", byte); }

}  // namespace

/// Symbols of one word; all vectors keep their room.
struct BpeModel::Symbols final : TextModel::Scratch {
  struct Candidate {
    std::uint32_t rank, place, id;
    std::uint32_t left, right;  // ids, which show that an entry is out of date
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  std::vector<std::uint32_t> ids, ranks, joined;
  std::vector<std::uint32_t> next, previous;
  std::vector<Candidate> heap;
};

BpeModel::BpeModel(const TokenizerPart& part, bool byte_level) : byte_level_(byte_level) {
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (part.has(key) && !part.at(key).text().empty()) {
      part.unsupported(fmt::format("{} = \"{}\"", key, part.at(key).text()), "null");
    }
  }
  if (part.has("dropout") && part.at("dropout").number() != 0) {
    part.unsupported("dropout, which makes ids random,", "null");
  }
  byte_fallback_ = part.boolean_or("byte_fallback", false);
  fuse_unknown_ = part.boolean_or("fuse_unk", false);
  ignore_merges_ = part.boolean_or("ignore_merges", false);
  read_vocabulary(part);
  read_symbols(part);
  read_merges(part);
  // A character that is no token is written as bytes or as the unknown token, or left out.
  const bool joins_unknown =
      joined_to_mark_.contains(U'>') ||
      (unknown_ && joined_to_mark_.contains(
                       decoded_before(tokens_.at(*unknown_), tokens_.at(*unknown_).size()).value));
  splits_at_mark_ = !byte_level_ && !ignore_merges_ && characters_.contains(kMark) &&
                    (writes_all_bytes() || unknown_) && !joins_unknown;
}

void BpeModel::read_vocabulary(const TokenizerPart& part) {
  for (const auto& [token, id_part] : part.at("vocab").members()) {
    const std::uint32_t id = id_part.id();
    const auto [entry, added] = tokens_.emplace(id, token);
    if (!added) {
      part.bad(
          fmt::format("vocab gives \"{}\" and \"{}\" the same id {}", entry->second, token, id));
    }
    vocabulary_.emplace(token, id);
    id_bound_ = std::max(id_bound_, id + 1);
  }
}

void BpeModel::read_symbols(const TokenizerPart& part) {
  bytes_.fill(kNone);
  for (unsigned byte = 0; byte < bytes_.size(); ++byte) {
    std::string token;
    if (byte_level_) {
      append_utf8(token, character_of_byte(static_cast<unsigned char>(byte)));
    } else {
      token = fallback_token(byte);
    }
    if (const std::optional<std::uint32_t> id = id_of(token)) bytes_[byte] = *id;
  }
  for (const auto& [token, id] : vocabulary_) {
    if (token.empty()) continue;  // no word is
    const DecodedCharacter c = decoded_at(token, 0);
    if (c.bytes == token.size()) characters_.emplace(c.value, id);
    if (!ignore_merges_) continue;
    if (!byte_level_) {
      whole_words_.emplace(token, id);
    } else if (const std::optional<std::string> bytes = bytes_of_token(token)) {
      whole_words_.emplace(*bytes, id);
    }
  }
  read_unknown(part);
  if (byte_level_) {
    append_utf8(newline_, character_of_byte('\n'));
  } else if (characters_.contains(U'\n')) {
    newline_ = "\n";
  } else {
    newline_ = fallback_token('\n');
  }
}

void BpeModel::read_unknown(const TokenizerPart& part) {
  if (!part.has("unk_token")) return;
  const std::string unknown = part.at("unk_token").text();
  unknown_ = id_of(unknown);
  if (!unknown_ || unknown.empty())
    part.bad(fmt::format("unk_token \"{}\" is not in vocab", unknown));
}

void BpeModel::reserve_merges(std::size_t count) {
  merges_.assign(std::bit_ceil(count * 2 + 2), Merge{0, kNoMerge, 0});
}

void BpeModel::read_merges(const TokenizerPart& part) {
  const std::vector<TokenizerPart> merges = part.at("merges").elements();
  reserve_merges(merges.size());
  std::uint32_t rank = 0;
  for (const TokenizerPart& merge : merges) {
    if (merge.is_text()) {
      const std::string both = merge.text();
      // `tokenizers` leaves out the version line of a merges.txt, and does not count it.
      if (both.starts_with("#version")) continue;
      const std::size_t space = both.find(' ');
      if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos) {
        merge.bad(fmt::format("\"{}\" is not two tokens with one space between them", both));
      }
      add_merge(merge, both.substr(0, space), both.substr(space + 1), rank);
    } else {
      const std::vector<TokenizerPart> both = merge.elements();
      if (both.size() != 2) merge.bad("is not a pair of tokens");
      add_merge(merge, both[0].text(), both[1].text(), rank);
    }
    ++rank;
  }
}

void BpeModel::add_merge(const TokenizerPart& part, const std::string& left,
                         const std::string& right, std::uint32_t rank) {
  const auto known = [&](const std::string& token) {
    const std::optional<std::uint32_t> id = id_of(token);
    if (!id) part.bad(fmt::format("\"{}\" is not in vocab", token));
    return *id;
  };
  if (left.empty() || right.empty()) part.bad("joins an empty token");
  const std::uint64_t pair = pair_of(known(left), known(right));
  const Merge merge{pair, rank, known(left + right)};
  std::size_t at = slot_of(pair) & (merges_.size() - 1);
  while (merges_[at].rank != kNoMerge && merges_[at].pair != pair) {
    at = (at + 1) & (merges_.size() - 1);
  }
  merges_[at] = merge;  // of equal pairs the last counts, as in `tokenizers`
  note_joint(left, right);
}

/// A merge joins symbols only where the last character of its left token meets the first one of its
/// right token.
void BpeModel::note_joint(std::string_view left, std::string_view right) {
  const char32_t last = decoded_before(left, left.size()).value;
  const char32_t first = decoded_at(right, 0).value;
  if (first == kMark) joined_to_mark_.insert(last);
  if (left.ends_with(newline_)) joined_to_newline_.insert(first);
}

const BpeModel::Merge* BpeModel::merge_of(std::uint32_t left, std::uint32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t at = slot_of(pair) & (merges_.size() - 1);
  while (merges_[at].rank != kNoMerge) {
    if (merges_[at].pair == pair) return &merges_[at];
    at = (at + 1) & (merges_.size() - 1);
  }
  return nullptr;
}

std::unique_ptr<TextModel::Scratch> BpeModel::make_scratch() const {
  return std::make_unique<Symbols>();
}

std::optional<std::uint32_t> BpeModel::id_of(std::string_view token) const {
  const auto entry = vocabulary_.find(std::string(token));
  if (entry == vocabulary_.end()) return {};
  return entry->second;
}

const std::string* BpeModel::token_of(std::uint32_t id) const {
  const auto entry = tokens_.find(id);
  return entry == tokens_.end() ? nullptr : &entry->second;
}

/// Up to the first metaspace behind a character that no merge joins with one.
std::size_t BpeModel::independent_prefix(std::string_view word) const {
  if (!splits_at_mark_) return word.size();
  for (std::size_t at = word.find(kMarkText, 1); at != std::string_view::npos;
       at = word.find(kMarkText, at + kMarkText.size())) {
    if (!joined_to_mark_.contains(decoded_before(word, at).value)) return at;
  }
  return word.size();
}

bool BpeModel::writes_all_bytes() const {
  return byte_fallback_ && std::ranges::find(bytes_, kNone) == bytes_.end();
}

bool BpeModel::parts_at_newline(char32_t next) const {
  if (ignore_merges_) return false;
  if (byte_level_) {
    std::string text;
    append_utf8(text, next);
    return bytes_['\n'] != kNone &&
           !joined_to_newline_.contains(character_of_byte(static_cast<unsigned char>(text[0])));
  }
  // An unknown newline may be one token with unknown characters around it; `next` may be written as
  // bytes, and so begin with '<'.
  return (characters_.contains(U'\n') || writes_all_bytes()) &&
         !joined_to_newline_.contains(next) && !joined_to_newline_.contains(U'<');
}

/// The bytes of a character that is no token. RETURNS: whether all of them are tokens.
bool BpeModel::add_fallback(std::string_view character, Symbols& symbols) const {
  if (!byte_fallback_) return false;
  const auto id_of_byte = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  if (std::ranges::any_of(character, [&](char byte) { return id_of_byte(byte) == kNone; })) {
    return false;
  }
  for (const char byte : character) symbols.ids.push_back(id_of_byte(byte));
  return true;
}

void BpeModel::first_symbols(std::string_view word, Symbols& symbols) const {
  symbols.ids.clear();
  bool pending = false;  // an unknown token that is not out yet
  const auto flush = [&] {
    if (pending) symbols.ids.push_back(*unknown_);
    pending = false;
  };
  for (std::size_t at = 0; at < word.size();) {
    std::size_t bytes = 1;
    std::uint32_t id = kNone;
    if (byte_level_) {
      id = bytes_[static_cast<unsigned char>(word[at])];
    } else {
      const DecodedCharacter c = decoded_at(word, at);
      bytes = c.bytes;
      const auto entry = characters_.find(c.value);
      if (entry != characters_.end()) id = entry->second;
    }
    if (id != kNone) {
      flush();
      symbols.ids.push_back(id);
    } else if (byte_level_ || !add_fallback(word.substr(at, bytes), symbols)) {
      // Bytes do not end a run of unknown characters, and without an unknown token a character is
      // left out: `tokenizers` does so.
      if (pending && !fuse_unknown_) flush();
      pending = unknown_.has_value();
    }
    at += bytes;
  }
  flush();
}

void BpeModel::encode(std::string_view word, Scratch& scratch,
                      std::vector<std::uint32_t>& ids) const {
  if (ignore_merges_) {
    const auto entry = whole_words_.find(std::string(word));
    if (entry != whole_words_.end()) {
      ids.push_back(entry->second);
      return;
    }
  }
  auto& symbols = static_cast<Symbols&>(scratch);
  first_symbols(word, symbols);
  if (symbols.ids.size() < 2) {
    ids.insert(ids.end(), symbols.ids.begin(), symbols.ids.end());
  } else if (symbols.ids.size() <= kFew) {
    merge_few(symbols, ids);
  } else {
    merge_many(symbols, ids);
  }
}

/// Looks at all pairs of the word for each merge.
void BpeModel::merge_few(Symbols& symbols, std::vector<std::uint32_t>& ids) const {
  std::vector<std::uint32_t>& own = symbols.ids;
  std::vector<std::uint32_t>& ranks = symbols.ranks;    // of the merge of i and i + 1
  std::vector<std::uint32_t>& joined = symbols.joined;  // the joined token
  std::size_t count = own.size();
  ranks.assign(count, kNoMerge);
  joined.resize(count);
  const auto look_up = [&](std::size_t i) {
    const Merge* const merge = i + 1 < count ? merge_of(own[i], own[i + 1]) : nullptr;
    ranks[i] = merge ? merge->rank : kNoMerge;
    if (merge) joined[i] = merge->id;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (true) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (count < 2 || ranks[best] == kNoMerge) break;
    own[best] = joined[best];
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      own[i] = own[i + 1];
      ranks[i] = ranks[i + 1];
      joined[i] = joined[i + 1];
    }
    --count;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids.insert(ids.end(), own.begin(), own.begin() + static_cast<std::ptrdiff_t>(count));
}

/// With a heap of the pairs.
void BpeModel::merge_many(Symbols& symbols, std::vector<std::uint32_t>& ids) const {
  std::vector<std::uint32_t>& own = symbols.ids;
  const auto count = static_cast<std::uint32_t>(own.size());
  symbols.next.resize(count);
  symbols.previous.resize(count);
  symbols.heap.clear();
  const auto push = [&](std::uint32_t left, std::uint32_t right) {
    const Merge* const merge = merge_of(own[left], own[right]);
    if (!merge) return;
    symbols.heap.push_back({merge->rank, left, merge->id, own[left], own[right]});
    std::ranges::push_heap(symbols.heap, std::greater<>());
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols.next[i] = i + 1;
    symbols.previous[i] = i == 0 ? kNone : i - 1;
    if (i + 1 < count) push(i, i + 1);
  }
  while (!symbols.heap.empty()) {
    const Symbols::Candidate top = symbols.heap.front();
    std::ranges::pop_heap(symbols.heap, std::greater<>());
    symbols.heap.pop_back();
    const std::uint32_t right = symbols.next[top.place];
    if (own[top.place] != top.left || right >= count || own[right] != top.right) continue;
    own[top.place] = top.id;
    own[right] = kNone;  // gone
    const std::uint32_t after = symbols.next[right];
    symbols.next[top.place] = after;
    if (after < count) {
      symbols.previous[after] = top.place;
      push(top.place, after);
    }
    if (symbols.previous[top.place] != kNone) push(symbols.previous[top.place], top.place);
  }
  for (std::uint32_t i = 0; i < count; i = symbols.next[i]) ids.push_back(own[i]);
}

}  // namespace isthmus
