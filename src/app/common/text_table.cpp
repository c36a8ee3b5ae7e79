// SPDX-License-Identifier: Apache-2.0
#include "app/common/text_table.h"

#include <algorithm>

#include "core/base/check.h"

namespace isthmus::app {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowest = 24;  // columns that wrapped text gets at least

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789.,+-e%") == std::string_view::npos;
}

/// Words of `text` in lines of at most `width` columns.
std::vector<std::string> lines_of(std::string_view text, std::size_t width) {
  std::vector<std::string> lines = {""};
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    const std::size_t used = display_width(lines.back());
    if (used > 0 && used + 1 + display_width(word) > width) {
      lines.emplace_back();
    } else if (used > 0) {
      lines.back() += ' ';
    }
    lines.back() += word;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return lines;
}

}  // namespace

void TextTable::add(std::vector<std::string> cells) {
  ISTHMUS_CHECK(cells.size() == headings_.size(), cells.size(), headings_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(const Terminal& terminal) const {
  const std::size_t last = headings_.size() - 1;
  std::vector<std::size_t> columns(headings_.size());
  for (std::size_t i = 0; i < last; ++i) {
    columns[i] = display_width(headings_[i]);
    for (const auto& row : rows_) {
      columns[i] = std::max(columns[i], display_width(row[i]));
    }
  }
  std::size_t before = 0;
  for (std::size_t i = 0; i < last; ++i) {
    before += columns[i] + kGap;
  }
  const std::size_t room =
      std::max(kNarrowest, terminal.width() - std::min(terminal.width(), before));
  const auto padded = [&columns](std::size_t i, const std::string& cell) {
    const std::string spaces(columns[i] - display_width(cell), ' ');
    return (is_number(cell) ? spaces + cell : cell + spaces) + std::string(kGap, ' ');
  };
  std::string heading;
  for (std::size_t i = 0; i < last; ++i) {
    const bool right = !rows_.empty() && is_number(rows_.front()[i]);
    const std::string spaces(columns[i] - display_width(headings_[i]), ' ');
    heading += (right ? spaces + headings_[i] : headings_[i] + spaces) + std::string(kGap, ' ');
  }
  std::string text = terminal.paint(Style::kDim, heading + headings_[last]) + "\n";
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < last; ++i) {
      text += padded(i, row[i]);
    }
    const auto lines = lines_of(row[last], room);
    for (std::size_t k = 0; k < lines.size(); ++k) {
      text += (k == 0 ? "" : std::string(before, ' ')) + lines[k] + "\n";
    }
  }
  return text;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string result;
  for (const std::string& line :
       lines_of(text, std::max(kNarrowest, width - std::min(width, indent)))) {
    result += std::string(indent, ' ') + line + "\n";
  }
  return result;
}

}  // namespace isthmus::app
