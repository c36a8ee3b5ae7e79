// SPDX-License-Identifier: Apache-2.0
// Learns a tokenizer from files of documents: the words of all files are counted, then merges are
// learnt from the counts (text/bpe_trainer.h). Memory grows with the number of different words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/base/storage.h"

namespace isthmus {

struct TrainTokenizerOptions {
  std::vector<std::filesystem::path> files;
  std::filesystem::path out;   // folder of the resulting tokenizer.json and tokenizer_config.json
  std::string field = "text";  // of JSON lines
  std::int64_t vocabulary = 32000;
  std::string pattern = "gpt2";       // gpt2 | llama3 | qwen2
  std::string end = "<|endoftext|>";  // the special token, id 0
  bool skip_bad = false;
};

struct TrainTokenizerProgress {
  bool merging = false;
  std::int64_t done = 0, total = 0;  // bytes of files; merging: tokens
};
using TrainTokenizerWatch = std::function<void(const TrainTokenizerProgress&)>;

struct TrainTokenizerSummary {
  std::int64_t vocabulary = 0, merges = 0, words = 0, documents = 0, skipped = 0;
  std::string first_skipped = {};
};

/// THROWS: SystemError of a file or line; ConfigError for an impossible vocabulary or token.
[[nodiscard]] TrainTokenizerSummary train_tokenizer_on_files(Storage& storage,
                                                             const TrainTokenizerOptions& options,
                                                             const TrainTokenizerWatch& watch);

}  // namespace isthmus
