// SPDX-License-Identifier: Apache-2.0
// The tokens of `[data]`. A source is one or more mapped files, joined, or a generated text;
// several `sources` are concatenated in the order of their names. Of the N tokens of a source the
// last floor(N * val_fraction) are for validation, the first n = N - floor(N * val_fraction) for
// training. Immutable; any thread may read. Nothing is copied until a window is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/data_file.h"
#include "core/base/storage.h"
#include "data/packed_rows.h"
#include "data/token_file.h"
#include "data/vocabulary.h"
#include "isthmus/config.h"

namespace isthmus {

/// Opens files of conversations, of a source that messages name so.
using OpenConversations = std::function<PackedConversations(
    const std::vector<std::filesystem::path>& files, const std::string& source)>;

class Dataset {
 public:
  /// Opens `config.source`, or each of `config.sources`; relative paths start at `folder` (that of
  /// the TOML file). Several files are joined in sorted order. THROWS: ConfigError naming
  /// data.source or data.val_fraction and the defect; SystemError naming a file.
  /// conversations: texts are files of conversations, which it opens; absent: they are texts.
  [[nodiscard]] static Dataset open(const Storage& storage, const DataConfig& config,
                                    const std::filesystem::path& folder,
                                    ReadingRules rules = ReadingRules::kOfToday,
                                    std::int64_t most_inflated = kMostInflatedBytes,
                                    const OpenConversations& conversations = {});

  /// One `[data] source`, or one of several.
  struct Source {
    std::string name;                               // in data.mix; empty if there is only one
                                                    // source
    std::string text;                               // "tokens:web/*.bin"
    double share = 1;                               // of the samples; the shares' sum is 1
    std::int64_t begin = 0;                         // index of its first token in the data set
    std::int64_t tokens = 0;                        // tokens for training and validation
    std::optional<std::int32_t> document_end = {};  // the id after each document
    std::optional<ConversationFacts> packed = {};   // of conversations
  };
  /// At least one source.
  [[nodiscard]] std::span<const Source> sources() const { return sources_; }
  /// Checks that every source has a document_end, for data.pack = "documents". THROWS: ConfigError
  /// naming a source that has none, or one that differs from data.eos.
  void check_documents() const;

  /// The rules by which the files were read.
  [[nodiscard]] ReadingRules rules() const { return rules_; }
  [[nodiscard]] const std::string& source() const { return source_; }
  /// "text", "llm.c", "nanoGPT", "Megatron", "NumPy", "synth", a width given by the source, or
  /// several joined by "+".
  [[nodiscard]] const std::string& format() const { return format_; }
  /// True if the ids are bytes: of texts, or of files that the source declares as u8.
  [[nodiscard]] bool is_bytes() const {
    return format_ == "text" || format_ == token_type_name(TokenType::kU8);
  }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t train_tokens() const { return train_tokens_; }
  [[nodiscard]] std::int64_t validation_tokens() const { return tokens_ - train_tokens_; }
  /// Number of validation tokens of a source with `tokens` tokens.
  [[nodiscard]] std::int64_t validation_tokens_of(std::int64_t tokens) const;
  /// Number of validation tokens of `source`.
  [[nodiscard]] std::int64_t validation_tokens_of(const Source& source) const;
  /// Smallest vocabulary certain to hold every id, by format alone: 256 for text, V for synth, and
  /// for token files the range of their integers.
  [[nodiscard]] std::int64_t vocab_bound() const { return vocab_bound_; }
  /// Entropy rate of a synthetic source, in nats per token.
  [[nodiscard]] std::optional<double> entropy_rate() const { return entropy_rate_; }

  /// Tokens [begin, begin + out.size()) of the whole source. REQUIRES: in range.
  /// THROWS: SystemError naming file and position of an id that is negative or above 2^31 - 1.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
  /// The marks beside tokens [begin, begin + out.size()). REQUIRES: in range, of conversations.
  void read_marks(std::int64_t begin, std::span<std::uint8_t> out) const;
  /// The same as `read`, and every id must be below `vocab`. THROWS: ConfigError naming id,
  /// position, file and what sets `vocab`.
  void read_checked(std::int64_t begin, std::span<std::int32_t> out, const Vocabulary& vocab) const;
  /// Reads everything once when `vocab` is below `vocab_bound()` and the source has at most
  /// `kScanTokens` tokens; larger ones are checked batch by batch. THROWS: as read_checked.
  void check_vocabulary(const Vocabulary& vocab) const;
  static constexpr std::int64_t kScanTokens = std::int64_t{1} << 28;

  /// Reads and hashes every input.
  [[nodiscard]] std::vector<DataFile> fingerprint() const;

  /// One input file, or the only input of a synthetic source.
  struct Segment {
    std::int64_t begin = 0;  // index of its first token in the data set
    TokenFile file;
  };
  [[nodiscard]] std::span<const Segment> segments() const { return segments_; }
  /// The bytes that digests cover: those of the file, or of the generated tokens.
  [[nodiscard]] std::span<const std::byte> bytes_of(const Segment& segment) const;

 private:
  /// Opens a single source.
  [[nodiscard]] static Dataset open_one(const Storage& storage, const std::string& source,
                                        const DataConfig& config,
                                        const std::filesystem::path& folder, ReadingRules rules,
                                        std::int64_t most_inflated,
                                        const OpenConversations& conversations);
  /// Appends the tokens of `other` to this data set.
  void append(Dataset&& other, std::string name, double share);
  [[nodiscard]] const Source& source_of(std::int64_t token) const;
  [[nodiscard]] const Segment& segment_of(std::int64_t token) const;
  [[nodiscard]] std::string place(std::int64_t token) const;
  void open_files(const Storage& storage, const std::filesystem::path& folder);
  [[nodiscard]] ConversationFacts open_packed(const Storage& storage,
                                              const std::filesystem::path& folder,
                                              const OpenConversations& conversations);
  void open_synth();

  ReadingRules rules_ = ReadingRules::kOfToday;
  std::int64_t most_inflated_ = kMostInflatedBytes;  // limit for all files together
  std::string source_;
  std::string format_;
  std::vector<Segment> segments_;
  std::vector<Source> sources_;
  std::vector<std::vector<std::uint16_t>> generated_;  // of synthetic sources
  std::optional<std::int64_t> eos_;                    // data.eos
  std::int64_t tokens_ = 0;
  std::int64_t train_tokens_ = 0;
  double val_fraction_ = 0;
  std::int64_t vocab_bound_ = 0;
  std::optional<double> entropy_rate_;
};

}  // namespace isthmus
