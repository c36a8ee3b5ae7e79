// SPDX-License-Identifier: Apache-2.0
#include "text/unigram_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "isthmus/errors.h"
#include "text/unicode.h"

namespace isthmus {
namespace {
constexpr double kUnknownPenalty = 10;  // below the worst token's score
constexpr int kLargestPower = 308;      // of ten, that a double holds

double power_of_ten(int exponent) {
  double power = 0;
  const std::string text = fmt::format("1e{}", exponent);
  std::from_chars(text.data(), text.data() + text.size(), power);
  return power;
}

/// A score as `tokenizers` reads it. Its JSON reader (serde_json) takes the digits as a whole
/// number and multiplies or divides by a power of ten, so one score in five is the double next to
/// the nearest one; a tie of two ways to cut a word may fall by that.
double score_as_tokenizers_reads(double score) {
  char text[40];
  const std::to_chars_result end =
      std::to_chars(text, text + sizeof(text), std::abs(score), std::chars_format::scientific);
  std::uint64_t digits = 0;
  int exponent = 0;
  bool behind_point = false;
  for (const char* at = text; at < end.ptr; ++at) {
    if (*at == '.') {
      behind_point = true;
    } else if (*at == 'e') {
      int written = 0;
      std::from_chars(at + (at[1] == '+' ? 2 : 1), end.ptr, written);
      exponent += written;
      break;
    } else {
      digits = digits * 10 + static_cast<std::uint64_t>(*at - '0');
      exponent -= behind_point ? 1 : 0;
    }
  }
  auto value = static_cast<double>(digits);
  if (exponent < -kLargestPower) {
    value /= power_of_ten(kLargestPower);
    exponent += kLargestPower;
  }
  value = exponent >= 0 ? value * power_of_ten(exponent) : value / power_of_ten(-exponent);
  return std::signbit(score) ? -value : value;
}
}  // namespace

/// The best way to each place of a word.
struct UnigramModel::Paths final : TextModel::Scratch {
  struct Place {
    double score = 0;
    std::uint32_t begin = kNone;  // of the last piece; kNone: nothing leads here yet
    std::uint32_t id = 0;
  };
  std::vector<Place> places;
  std::vector<std::uint32_t> cuts;  // pieces of the best way, from the last to the first
};

UnigramModel::UnigramModel(const TokenizerPart& part) {
  byte_fallback_ = part.boolean_or("byte_fallback", false);
  const std::vector<TokenizerPart> vocab = part.at("vocab").elements();
  if (vocab.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    part.bad("vocab has more tokens than ids can count");
  }
  double worst = std::numeric_limits<double>::infinity();
  std::size_t bytes = 0;
  for (const TokenizerPart& entry : vocab) {
    const std::vector<TokenizerPart> both = entry.elements();
    if (both.size() != 2) entry.bad("is not a token and its score");
    tokens_.push_back(both[0].text());
    scores_.push_back(score_as_tokenizers_reads(both[1].number()));
    if (!std::isfinite(scores_.back())) entry.bad("has a score that is not finite");
    worst = std::min(worst, scores_.back());
    bytes += tokens_.back().size();
  }
  unknown_score_ = worst - kUnknownPenalty;
  edges_.resize(std::bit_ceil(bytes * 2 + 2));
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    ids_[tokens_[id]] = static_cast<std::uint32_t>(id);  // of equal tokens the last counts
  }
  for (const auto& [token, id] : ids_) add_to_tree(token, id);
  if (part.has("unk_id")) {
    unknown_ = part.at("unk_id").id();
    if (*unknown_ >= tokens_.size()) part.bad("unk_id is no token of vocab");
  }
  bytes_.fill(kNone);
  for (unsigned byte = 0; byte < bytes_.size(); ++byte) {
    if (const auto id = id_of(fmt::format("<0x{:02X}>", byte))) bytes_[byte] = *id;
  }
}

std::size_t UnigramModel::edge_slot(std::uint32_t node, unsigned char byte) const {
  const std::uint64_t key = std::uint64_t{node} << 8 | byte;
  std::uint64_t hash = key * 0x9E3779B97F4A7C15U;
  hash ^= hash >> 31;
  std::size_t at = hash & (edges_.size() - 1);
  while (edges_[at].node != 0 && edges_[at].key != key) at = (at + 1) & (edges_.size() - 1);
  return at;
}

void UnigramModel::add_to_tree(std::string_view token, std::uint32_t id) {
  std::uint32_t node = 0;
  std::size_t last = 0;
  for (const char c : token) {
    const auto byte = static_cast<unsigned char>(c);
    last = edge_slot(node, byte);
    Edge& edge = edges_[last];
    if (edge.node == 0) {
      edge.key = std::uint64_t{node} << 8 | byte;
      edge.node = nodes_++;
    }
    node = edge.node;
  }
  if (!token.empty()) edges_[last].id = id;
}

std::unique_ptr<TextModel::Scratch> UnigramModel::make_scratch() const {
  return std::make_unique<Paths>();
}

std::optional<std::uint32_t> UnigramModel::id_of(std::string_view token) const {
  const auto entry = ids_.find(std::string(token));
  if (entry == ids_.end()) return {};
  return entry->second;
}

const std::string* UnigramModel::token_of(std::uint32_t id) const {
  return id < tokens_.size() ? &tokens_[id] : nullptr;
}

void UnigramModel::best_path(std::string_view word, Paths& paths) const {
  std::vector<Paths::Place>& places = paths.places;
  places.assign(word.size() + 1, {});
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::uint32_t id) {
    Paths::Place& place = places[end];
    if (place.begin != kNone && score <= place.score) return;
    place = {score, static_cast<std::uint32_t>(begin), id};
  };
  for (std::size_t begin = 0; begin < word.size();) {
    const double here = places[begin].score;
    const std::size_t character = decoded_at(word, begin).bytes;
    bool single = false;  // whether a token is this one character
    std::uint32_t node = 0;
    for (std::size_t end = begin; end < word.size();) {
      const Edge& edge = edges_[edge_slot(node, static_cast<unsigned char>(word[end]))];
      if (edge.node == 0) break;
      node = edge.node;
      ++end;
      if (edge.id == kNone) continue;
      offer(begin, end, scores_[edge.id] + here, edge.id);
      single = single || end - begin == character;
    }
    if (!single) {
      if (!unknown_) {
        throw SystemError(fmt::format(
            "the tokenizer has no token for '{}' and no unk_id: use a tokenizer with byte_fallback "
            "or an unknown token",
            word.substr(begin, character)));
      }
      offer(begin, begin + character, unknown_score_ + here, *unknown_);
    }
    begin += character;
  }
}

void UnigramModel::append_piece(std::string_view piece, std::vector<std::uint32_t>& ids) const {
  if (const std::optional<std::uint32_t> id = id_of(piece)) {
    ids.push_back(*id);
    return;
  }
  const auto id_of_byte = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  const bool all = byte_fallback_ && std::ranges::none_of(piece, [&](char byte) {
                     return id_of_byte(byte) == kNone;
                   });
  if (!all) {
    ids.push_back(*unknown_);
    return;
  }
  for (const char byte : piece) ids.push_back(id_of_byte(byte));
}

void UnigramModel::encode(std::string_view word, Scratch& scratch,
                          std::vector<std::uint32_t>& ids) const {
  auto& paths = static_cast<Paths&>(scratch);
  best_path(word, paths);
  paths.cuts.clear();
  for (auto end = static_cast<std::uint32_t>(word.size()); end > 0; end = paths.places[end].begin) {
    paths.cuts.push_back(end);
  }
  std::size_t begin = 0;
  for (std::size_t i = paths.cuts.size(); i > 0; --i) {
    std::size_t end = paths.cuts[i - 1];
    if (unknown_ && paths.places[end].id == *unknown_) {  // unknown neighbours are one piece
      while (i > 1 && paths.places[paths.cuts[i - 2]].id == *unknown_) end = paths.cuts[--i - 1];
      append_piece(word.substr(begin, end - begin), ids);
    } else {
      ids.push_back(paths.places[end].id);
    }
    begin = end;
  }
}

}  // namespace isthmus
