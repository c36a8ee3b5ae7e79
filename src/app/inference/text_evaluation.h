// SPDX-License-Identifier: Apache-2.0
// Loss, perplexity and bits per byte of files under a model. A text file is one document, a line of
// a .jsonl file is one, and a token file is one stream, whatever documents it holds. A document is
// encoded with the special tokens that its tokenizer puts around a text, and no window spans two
// documents. Files are read in pieces: memory does not grow with them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/inference/model_folder.h"
#include "app/inference/windowed_loss.h"
#include "core/base/storage.h"

namespace isthmus::app {

struct EvaluationOptions {
  std::vector<std::string> files;  // paths and patterns; "tokens:FILE[:WIDTH]" for token files
  std::string field = "text";      // of a JSON line
  bool skip_bad = false;           // malformed JSON lines are counted and left out
  WindowSizes windows;
  int threads = 1;
};

struct SourceLoss {
  std::string name;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;   // ids, including special ones
  std::int64_t counted = 0;  // predicted ids: all but the first of each document
  std::int64_t bytes = 0;    // of the text of these ids
  double loss_sum = 0;       // nats, over `counted`
  std::int64_t skipped = 0;  // malformed lines
  std::string first_skipped = {};

  [[nodiscard]] double loss() const { return loss_sum / static_cast<double>(counted); }
  [[nodiscard]] double perplexity() const;
  /// Nothing if the ids have no text.
  [[nodiscard]] std::optional<double> bits_per_byte() const;
  SourceLoss& operator+=(const SourceLoss& other);
};

struct EvaluationProgress {
  std::int64_t bytes = 0, of_bytes = 0;  // file sizes, all files
  std::int64_t tokens = 0;
};
/// Called between pieces; an exception ends the evaluation.
using EvaluationWatch = std::function<void(const EvaluationProgress&)>;

/// One entry a file, in the order of the files. THROWS: SystemError of a file or line; ConfigError
/// for an id beyond the model's vocabulary, or a file without predictions; RunError for a loss that
/// is not finite.
[[nodiscard]] std::vector<SourceLoss> evaluate_files(const Storage& storage, ModelFolder& model,
                                                     const EvaluationOptions& options,
                                                     const EvaluationWatch& watch);

}  // namespace isthmus::app
