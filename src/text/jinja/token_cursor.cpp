// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/token_cursor.h"

#include "text/jinja/python_text.h"

namespace isthmus::jinja {

std::string TokenCursor::described(const Token& token) {
  switch (token.kind) {
    case TokenKind::kName:
    case TokenKind::kOperator:
    case TokenKind::kWhole:
    case TokenKind::kFloat:
      return fmt::format("'{}'", token.text);
    case TokenKind::kString:
      return fmt::format("the text {}", repr_of_text(token.text));
    case TokenKind::kBlockEnd:
      return "\"%}\"";
    case TokenKind::kPrintEnd:
      return "\"}}\"";
    default:
      return "the end of the template";
  }
}

}  // namespace isthmus::jinja
