// SPDX-License-Identifier: Apache-2.0
// Learns a byte-level BPE (Sennrich et al., arXiv:1508.07909): repeatedly the most frequent pair of
// neighbours becomes a token; of equally frequent pairs the one with the smaller ids. If the
// trainer of `tokenizers` is deterministic the merges equal its merges (BpeTrainer with the
// alphabet of bytes, min_frequency 0), which breaks ties by the pairs' ids too. Deterministic; one
// thread.
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

/// Words of texts and their frequencies.
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

/// Called at intervals with the number of tokens; its exception ends the training.
using MergeProgress = std::function<void(std::int64_t tokens)>;

/// special: tokens that get the first ids; the 256 bytes follow. Ends at `vocabulary` tokens, or
/// earlier if no neighbours are left. REQUIRES: vocabulary holds both.
[[nodiscard]] TrainedBpe train_bpe(const WordCounts& counts, std::size_t vocabulary,
                                   const std::vector<std::string>& special,
                                   const MergeProgress& progress);

}  // namespace isthmus
