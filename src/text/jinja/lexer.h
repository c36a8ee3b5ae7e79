// SPDX-License-Identifier: Apache-2.0
// The tokens of a template, with transformers' whitespace control: trim_blocks and lstrip_blocks,
// and the signs "-" and "+" at a delimiter. A pure function; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace isthmus::jinja {

enum class TokenKind {
  kText,  // between tags
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kWhole,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  std::string text = {};  // of a string: its value
};

/// THROWS: Refusal "line N: ..." for a character that begins no token.
[[nodiscard]] std::vector<Token> tokens_of(std::string_view source);

}  // namespace isthmus::jinja
