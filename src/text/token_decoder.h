// SPDX-License-Identifier: Apache-2.0
// The decoder of a tokenizer.json: converts tokens to text. ByteLevel, Metaspace, Replace of a
// text, ByteFallback, Fuse, Strip, and sequences of them; other decoders are errors that name them.
// Immutable.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer_json.h"

namespace isthmus {

class TokenDecoder {
 public:
  TokenDecoder() = default;  // joins tokens with spaces
  /// THROWS: SystemError naming the component that is not supported.
  explicit TokenDecoder(const TokenizerPart& part);
  [[nodiscard]] std::string text_of(std::vector<std::string> tokens) const;

 private:
  enum class Kind { kByteLevel, kMetaspace, kReplace, kByteFallback, kFuse, kStrip };
  struct Step {
    Kind kind;
    std::string pattern, content;       // kReplace; kMetaspace and kStrip: content is the character
    bool drops_first = false;           // kMetaspace
    std::uint32_t start = 0, stop = 0;  // kStrip
  };
  void add(const TokenizerPart& part);
  static void take_step(const Step& step, std::vector<std::string>& tokens);

  std::vector<Step> steps_;
  bool none_ = true;
};

/// Bytes as UTF-8; each longest incomplete part of a code point becomes U+FFFD.
[[nodiscard]] std::string lossy_utf8(std::string_view bytes);

}  // namespace isthmus
