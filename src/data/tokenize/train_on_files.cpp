// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/train_on_files.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/tokenize/document_blocks.h"
#include "data/tokenize/document_encoder.h"
#include "isthmus/errors.h"
#include "text/bpe_trainer.h"
#include "text/byte_level_files.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace isthmus {
namespace {

using std::filesystem::path;

constexpr std::int64_t kBytes = 256;
constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 24;

WordPattern pattern_named(const std::string& name) {
  if (name == "llama3") return WordPattern::kLlama3;
  if (name == "qwen2") return WordPattern::kQwen2;
  if (name == "qwen3.5") return WordPattern::kQwen35;
  return WordPattern::kGpt2;
}

void check_options(const TrainTokenizerOptions& options) {
  const std::int64_t least = kBytes + 1;
  if (options.vocabulary < least || options.vocabulary > kMostVocabulary) {
    throw ConfigError(fmt::format("--vocab {}: must be {} (256 bytes and \"{}\") to {}",
                                  options.vocabulary, least, options.end, kMostVocabulary));
  }
  if (options.end.size() < 2 || first_invalid_utf8(options.end) != std::string::npos) {
    throw ConfigError(
        fmt::format("--eos {}: must be UTF-8 of at least two bytes, for a single one "
                    "may be a token of its own",
                    options.end));
  }
}

/// Counts the words of files, block by block.
class FileWords {
 public:
  FileWords(const TrainTokenizerOptions& options, WordPattern pattern,
            TrainTokenizerSummary& summary)
      : options_(options), summary_(summary), words_(pattern) {}

  void add(const DocumentBlock& block, bool lines, const std::string& label) {
    if (!lines) {
      add_text(block.text, fmt::format("{}: byte", label), block.first);
      summary_.controls.add_text(block.text, label, block.first);
      summary_.documents += block.last ? 1 : 0;
      return;
    }
    std::string_view text = block.text;
    for (std::int64_t number = block.first; !text.empty(); ++number) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      add_line(line, label, number);
    }
  }
  [[nodiscard]] const WordCounts& words() const { return words_; }

 private:
  void add_line(std::string_view line, const std::string& label, std::int64_t number) {
    try {
      const std::string found = text_of_line(line, options_.field);
      words_.add(found);
      summary_.controls.add_line(found, label, number);
      ++summary_.documents;
    } catch (const SystemError& error) {
      const std::string text = fmt::format("{}:{}: {}", label, number, error.what());
      if (!options_.skip_bad) {
        throw SystemError(text + " (--skip-bad counts such lines and goes on)");
      }
      if (summary_.skipped++ == 0) summary_.first_skipped = text;
    }
  }
  void add_text(std::string_view text, const std::string& place, std::int64_t first) {
    if (const std::size_t wrong = first_invalid_utf8(text); wrong != std::string_view::npos) {
      throw SystemError(fmt::format("{} {} is not UTF-8: convert the text with iconv -t UTF-8",
                                    place, first + static_cast<std::int64_t>(wrong)));
    }
    words_.add(text);
  }

  const TrainTokenizerOptions& options_;
  TrainTokenizerSummary& summary_;
  WordCounts words_;
};

/// The sum of the files' sizes. THROWS: SystemError.
std::int64_t bytes_of(const std::vector<path>& files) {
  std::int64_t bytes = 0;
  for (const path& file : files) {
    std::error_code error;
    bytes += static_cast<std::int64_t>(std::filesystem::file_size(file, error));
    if (error) {
      throw SystemError(fmt::format("{}: cannot be read: {}", file.string(), error.message()));
    }
  }
  return bytes;
}

}  // namespace

TrainTokenizerSummary train_tokenizer_on_files(Storage& storage,
                                               const TrainTokenizerOptions& options,
                                               const TrainTokenizerWatch& watch) {
  check_options(options);
  const WordPattern pattern = pattern_named(options.pattern);
  const std::vector<std::string> special{options.end};
  TrainTokenizerSummary summary;
  FileWords words(options, pattern, summary);
  // A tokenizer of bytes says where a text may be cut.
  const WordCounts nothing(pattern);
  const Tokenizer bytes(
      tokenizer_json_of(train_bpe(nothing, kBytes + 1, special, {}), pattern, special), "bytes");
  const std::int64_t all = bytes_of(options.files);
  std::int64_t done = 0;
  for (const path& file : options.files) {
    DocumentBlocks blocks(file, bytes);
    for (DocumentBlock block; blocks.next(block);) {
      words.add(block, blocks.lines(), file.string());
      if (watch) watch({.done = done + blocks.stream().bytes_read(), .total = all});
    }
    done += blocks.stream().bytes_read();
  }
  const TrainedBpe trained = train_bpe(
      words.words(), static_cast<std::size_t>(options.vocabulary), special, [&](std::int64_t now) {
        if (watch) watch({.merging = true, .done = now, .total = options.vocabulary});
      });
  storage.create_directories(options.out);
  write_atomically(storage, options.out / "tokenizer.json",
                   tokenizer_json_of(trained, pattern, special));
  const nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                         {"clean_up_tokenization_spaces", false},
                                         {"eos_token", options.end}};
  write_atomically(storage, options.out / "tokenizer_config.json", config.dump(2) + "\n");
  summary.vocabulary = static_cast<std::int64_t>(trained.tokens.size());
  summary.merges = std::ssize(trained.merges);
  summary.words = std::ssize(words.words().words());
  return summary;
}

}  // namespace isthmus
