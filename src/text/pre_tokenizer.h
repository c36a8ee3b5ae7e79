// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizer of a tokenizer.json: ByteLevel, Split (by the patterns of text/word_scanner.h
// or by a text), Digits, Metaspace, WhitespaceSplit, and sequences of them. Other pre-tokenizers
// are errors that name them. Immutable; any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"
#include "text/tokenizer_json.h"
#include "text/word_scanner.h"

namespace isthmus {

/// Called with each word in order.
using WordSink = std::function<void(std::string_view)>;

class PreTokenizer {
 public:
  PreTokenizer() = default;  // one word
  /// THROWS: SystemError naming the component that is not supported.
  explicit PreTokenizer(const TokenizerPart& part);

  /// True if words are passed to the model as bytes, each a character of the GPT-2 alphabet.
  [[nodiscard]] bool byte_level() const { return byte_level_; }
  /// The pattern, if the pre-tokenizer consists of it alone.
  [[nodiscard]] std::optional<WordPattern> only_pattern() const;
  /// Calls with the words of a piece in order; empty words are left out. `continues`: as
  /// Normalizer::apply.
  void split(const TextPiece& piece, bool continues, const WordSink& word) const;
  /// As Normalizer::may_be_cut.
  [[nodiscard]] bool may_be_cut() const;
  /// True if a word always ends at such a place, or before it.
  [[nodiscard]] bool parts_at_newline() const;

 private:
  enum class Kind { kPattern, kPrefixSpace, kText, kDigits, kMetaspace, kWhitespace };
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prefix { kOfFirst, kOfNone, kOfAll };
  struct Step {
    Kind kind = Kind::kPattern;
    WordPattern pattern = WordPattern::kGpt2;  // kPattern
    std::string text;                          // kText: the delimiter; kMetaspace: the mark
    Behavior behavior = Behavior::kIsolated;   // kText, kDigits
    bool invert = false;                       // kText
    Prefix prefix = Prefix::kOfAll;            // kMetaspace
    bool splits = true;                        // kMetaspace
  };
  struct Match {
    std::size_t begin, end;
    bool delimiter;
  };

  void add(const TokenizerPart& part);
  void add_split(const TokenizerPart& part);
  void add_metaspace(const TokenizerPart& part);
  static void take_step(const Step& step, TextPiece piece, bool continues,
                        std::vector<TextPiece>& out);
  static bool ends_at_newline(const Step& step) {
    return step.kind == Kind::kPattern || step.kind == Kind::kWhitespace;
  }
  static std::vector<Match> matches_of(const Step& step, std::string_view text);
  static std::vector<Match> pieces_of(const std::vector<Match>& matches, Behavior behavior);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

/// The fields of a Metaspace, which a decoder has too.
struct MetaspaceFields {
  std::string mark;
  std::string scheme;  // first, never or always
  bool split = true;
};
[[nodiscard]] MetaspaceFields metaspace_fields(const TokenizerPart& part);

}  // namespace isthmus
