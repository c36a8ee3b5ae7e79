// SPDX-License-Identifier: Apache-2.0
// Learns a byte-level BPE (Sennrich et al., arXiv:1508.07909): again and again the most frequent
// pair of neighbours becomes a token, of equally frequent ones that of the smaller ids. Where the
// trainer of `tokenizers` is deterministic the merges are its merges (BpeTrainer with the alphabet
// of bytes, min_frequency 0): the ids of pairs decide ties there too. Deterministic; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/word_scanner.h"

namespace isthmus {

/// Words of texts and how often each occurs.
class WordCounts {
 public:
  explicit WordCounts(WordPattern pattern) : pattern_(pattern) {}
  /// REQUIRES: UTF-8.
  void add(std::string_view text);
  [[nodiscard]] const std::unordered_map<std::string, std::int64_t>& words() const {
    return words_;
  }

 private:
  WordPattern pattern_;
  std::unordered_map<std::string, std::int64_t> words_;
};

struct TrainedBpe {
  std::vector<std::string> tokens;  // by id, as byte-level tokenizers write them
  std::vector<std::pair<std::string, std::string>> merges;
};

/// Called now and then with the number of tokens; what it throws ends the work.
using MergeProgress = std::function<void(std::int64_t tokens)>;

/// special: tokens that have the first ids; then come the 256 bytes. Ends at `vocabulary` tokens,
/// or earlier where no two neighbours are left. REQUIRES: vocabulary holds both.
[[nodiscard]] TrainedBpe train_bpe(const WordCounts& counts, std::size_t vocabulary,
                                   const std::vector<std::string>& special,
                                   const MergeProgress& progress);

/// A tokenizer.json of what was learnt; all of `special` are its special tokens.
[[nodiscard]] std::string tokenizer_json_of(const TrainedBpe& trained, WordPattern pattern,
                                            const std::vector<std::string>& special);

}  // namespace isthmus
