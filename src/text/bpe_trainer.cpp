// SPDX-License-Identifier: Apache-2.0
#include "text/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <set>

#include "core/base/check.h"
#include "text/byte_alphabet.h"
#include "text/unicode.h"

namespace isthmus {
namespace {

using TokenPair = std::pair<std::uint32_t, std::uint32_t>;

std::uint64_t key_of_pair(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32 | right;
}

/// A pair that may be joined next. Its count may be out of date.
struct Joinable {
  std::int64_t count;
  std::uint64_t pair;
  std::vector<std::uint32_t> words;  // that may hold it

  /// The heap's top is the largest: frequent, then of small ids.
  bool operator<(const Joinable& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class BpeLearning {
 public:
  BpeLearning(const WordCounts& counts, const std::vector<std::string>& special);
  [[nodiscard]] std::size_t tokens() const { return tokens_.size(); }
  /// RETURNS: whether there was a pair to join.
  bool step();
  [[nodiscard]] TrainedBpe result() const;

 private:
  std::uint32_t id_of(const std::string& token);
  void note(std::uint32_t left, std::uint32_t right, std::uint32_t word, std::int64_t change);
  void join_in(std::uint32_t word, TokenPair pair, std::uint32_t joined);
  void push_new();

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::vector<std::uint32_t>> words_;  // as tokens
  std::vector<std::int64_t> counts_;               // of words
  std::unordered_map<std::uint64_t, std::int64_t> pairs_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> new_places_;
  std::priority_queue<Joinable> heap_;
  std::vector<std::uint64_t> merges_;
};

BpeLearning::BpeLearning(const WordCounts& counts, const std::vector<std::string>& special) {
  for (const std::string& token : special) id_of(token);
  std::vector<char32_t> alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet.push_back(character_of_byte(static_cast<unsigned char>(byte)));
  }
  std::ranges::sort(alphabet);
  std::vector<std::uint32_t> of_byte(alphabet.size());
  for (const char32_t character : alphabet) {
    std::string token;
    append_utf8(token, character);
    of_byte[*byte_of_character(character)] = id_of(token);
  }
  for (const auto& [word, count] : counts.words()) {
    const auto place = static_cast<std::uint32_t>(words_.size());
    std::vector<std::uint32_t>& ids = words_.emplace_back();
    counts_.push_back(count);
    for (const char byte : word) ids.push_back(of_byte[static_cast<unsigned char>(byte)]);
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) note(ids[i], ids[i + 1], place, 1);
  }
  push_new();
}

std::uint32_t BpeLearning::id_of(const std::string& token) {
  const auto [entry, added] = ids_.emplace(token, static_cast<std::uint32_t>(tokens_.size()));
  if (added) tokens_.push_back(token);
  return entry->second;
}

void BpeLearning::note(std::uint32_t left, std::uint32_t right, std::uint32_t word,
                       std::int64_t change) {
  const std::uint64_t pair = key_of_pair(left, right);
  pairs_[pair] += change * counts_[word];
  if (change < 0) return;
  std::vector<std::uint32_t>& places = new_places_[pair];
  if (places.empty() || places.back() != word) places.push_back(word);
}

void BpeLearning::push_new() {
  for (auto& [pair, places] : new_places_) {
    const std::int64_t count = pairs_[pair];
    if (count > 0) heap_.push({count, pair, std::move(places)});
  }
  new_places_.clear();
}

void BpeLearning::join_in(std::uint32_t word, TokenPair pair, std::uint32_t joined) {
  std::vector<std::uint32_t>& ids = words_[word];
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] != pair.first || i + 1 >= ids.size() || ids[i + 1] != pair.second) {
      ids[kept++] = ids[i];
      continue;
    }
    if (kept > 0) {
      note(ids[kept - 1], pair.first, word, -1);
      note(ids[kept - 1], joined, word, 1);
    }
    if (i + 2 < ids.size()) {
      note(pair.second, ids[i + 2], word, -1);
      note(joined, ids[i + 2], word, 1);
    }
    ids[kept++] = joined;
    ++i;
  }
  ids.resize(kept);
}

bool BpeLearning::step() {
  while (!heap_.empty()) {
    Joinable top = heap_.top();
    heap_.pop();
    if (const std::int64_t now = pairs_[top.pair]; now != top.count) {
      top.count = now;
      heap_.push(std::move(top));
      continue;
    }
    if (top.count < 1) return false;
    const TokenPair pair{static_cast<std::uint32_t>(top.pair >> 32),
                         static_cast<std::uint32_t>(top.pair)};
    const std::uint32_t joined = id_of(tokens_[pair.first] + tokens_[pair.second]);
    merges_.push_back(top.pair);
    for (const std::uint32_t word : top.words) join_in(word, pair, joined);
    push_new();
    return true;
  }
  return false;
}

/// A pair that was joined twice has the place of its last time, as `tokenizers` keeps it.
TrainedBpe BpeLearning::result() const {
  TrainedBpe trained{.tokens = tokens_, .merges = {}};
  std::set<std::uint64_t> seen;
  for (auto pair = merges_.rbegin(); pair != merges_.rend(); ++pair) {
    if (!seen.insert(*pair).second) continue;
    trained.merges.emplace_back(tokens_[*pair >> 32], tokens_[*pair & 0xFFFFFFFFU]);
  }
  std::ranges::reverse(trained.merges);
  return trained;
}

}  // namespace

void WordCounts::add(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = word_length(text, at, pattern_);
    ++words_[std::string(text.substr(at, length))];
    at += length;
  }
}

TrainedBpe train_bpe(const WordCounts& counts, std::size_t vocabulary,
                     const std::vector<std::string>& special, const MergeProgress& progress) {
  constexpr std::size_t kReportEvery = 64;
  BpeLearning learning(counts, special);
  ISTHMUS_CHECK(learning.tokens() <= vocabulary, learning.tokens(), vocabulary);
  while (learning.tokens() < vocabulary && learning.step()) {
    if (progress && learning.tokens() % kReportEvery == 0) {
      progress(static_cast<std::int64_t>(learning.tokens()));
    }
  }
  return learning.result();
}

}  // namespace isthmus
