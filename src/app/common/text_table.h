// SPDX-License-Identifier: Apache-2.0
// Plain text for people: aligned columns, wrapped paragraphs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "app/common/terminal.h"

namespace isthmus::app {

/// Columns aligned to the left, cells that are numbers to the right; a heading stands as the first
/// row's cell does. The last column is text on the left. It wraps at the terminal's width, but gets
/// 24 columns at least, so a narrow terminal sees longer lines.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  /// REQUIRES: as many cells as headings.
  void add(std::vector<std::string> cells);
  [[nodiscard]] std::string text(const Terminal& terminal) const;

 private:
  std::vector<std::string> headings_;
  std::vector<std::vector<std::string>> rows_;
};

/// `text` in lines of at most `width` columns, each indented by `indent`, with a final newline.
/// Text gets 24 columns at least, and a word is never cut, so lines may be longer than `width`.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

}  // namespace isthmus::app
