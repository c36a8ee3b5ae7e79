// SPDX-License-Identifier: Apache-2.0
// The normalizer of a tokenizer.json: NFC, NFD, NFKC, NFKD, Nmt, Precompiled,
// Lowercase, StripAccents, Replace of a text or of runs of spaces, Prepend, Strip, and sequences of
// them. Other normalizers are errors that name them. Immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/character_map.h"
#include "text/tokenizer_json.h"

namespace isthmus {

/// A part of a text during encoding.
struct TextPiece {
  std::string text;
  /// True if its first character comes from the first character of the whole text, for Metaspace.
  bool at_start = false;
};

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  /// THROWS: SystemError naming the component that is not supported.
  explicit Normalizer(const TokenizerPart& part);

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  /// `continues`: the piece continues an earlier text, so nothing is prepended.
  void apply(TextPiece& piece, bool continues = false) const;
  [[nodiscard]] std::string apply(std::string_view text) const;
  /// True if normalizing two parts separately gives the normalized whole, for a cut after a newline
  /// between two characters that are not spaces (with `continues` for the second part).
  [[nodiscard]] bool may_be_cut() const;
  /// True if all characters except spaces stay unchanged.
  [[nodiscard]] bool keeps_characters() const;

 private:
  enum class Kind {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kNmt,
    kPrecompiled,
    kLowercase,
    kStripAccents,
    kBertClean,
    kBertHan,
    kBertStripAccents,
    kReplace,
    kReplaceRuns,
    kPrepend,
    kStrip
  };
  struct Step {
    Kind kind;
    std::string pattern, content;               // kReplace, kReplaceRuns; kPrepend has content
    bool left = false, right = false;           // kStrip
    std::shared_ptr<const CharacterMap> map{};  // kPrecompiled; copies of the normalizer share it
  };
  void add(const TokenizerPart& part);
  static void take_step(const Step& step, TextPiece& piece, bool continues);

  std::vector<Step> steps_;
};

/// The text of a component's "pattern": {"String": text}. THROWS: SystemError for anything else,
/// naming regular expressions.
[[nodiscard]] std::string text_pattern(const TokenizerPart& part);
/// `text` with every `pattern` in it replaced. REQUIRES: pattern is not empty.
[[nodiscard]] std::string with_replaced(std::string_view text, std::string_view pattern,
                                        std::string_view content);

}  // namespace isthmus
