// SPDX-License-Identifier: Apache-2.0
#include "config/load/config_load_diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

namespace isthmus {
namespace {

constexpr std::size_t kLongestExcerpt = 120;  // columns of a source line that are shown

/// Byte offset of code point `column` (from 1) in valid UTF-8.
std::size_t byte_of_column(std::string_view line, int column) {
  std::size_t i = 0;
  for (int seen = 1; seen < column && i < line.size(); ++seen) {
    ++i;
    while (i < line.size() && (static_cast<unsigned char>(line[i]) & 0xC0) == 0x80) {
      ++i;
    }
  }
  return i;
}

/// Cuts a long line to a window around the error; returns the column within the window.
int cut_excerpt(std::string& line, int column) {
  int shift = 0;
  if (column > static_cast<int>(kLongestExcerpt) - 20) {
    shift = column - 40;
    line = "..." + line.substr(byte_of_column(line, shift + 1));
    shift -= 3;
  }
  const std::size_t end = byte_of_column(line, static_cast<int>(kLongestExcerpt) + 1);
  if (end < line.size()) {
    line = line.substr(0, end) + "...";
  }
  return column - shift;
}

void render(const Diagnostic& diagnostic, std::string& text) {
  text +=
      fmt::format("{}: error: {} [{}]\n", diagnostic.where, diagnostic.message, diagnostic.code);
  if (diagnostic.line > 0) {
    std::string line = diagnostic.source_line;
    const int column = cut_excerpt(line, std::max(1, diagnostic.column));
    text += fmt::format("{:5} | {}\n", diagnostic.line, line);
    const int room = static_cast<int>(kLongestExcerpt) + 3 - column;
    const int carets = std::max(1, std::min(diagnostic.width, room));
    text += fmt::format("      | {}{}", std::string(static_cast<std::size_t>(column - 1), ' '),
                        std::string(static_cast<std::size_t>(carets), '^'));
    text += diagnostic.hint.empty() ? "\n" : fmt::format(" {}\n", diagnostic.hint);
  } else if (!diagnostic.hint.empty()) {
    text += fmt::format("      | {}\n", diagnostic.hint);
  }
}

std::string render_all(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics) {
    render(diagnostic, text);
  }
  if (!text.empty()) {
    text.pop_back();
  }
  return text;
}

}  // namespace

ConfigErrors::ConfigErrors(std::vector<Diagnostic> diagnostics)
    : ConfigError(render_all(diagnostics)), diagnostics_(std::move(diagnostics)) {}

std::string ConfigErrors::summary() const {
  if (diagnostics_.empty()) {
    return "no errors";
  }
  const Diagnostic& first = diagnostics_.front();
  std::string text = fmt::format("{}: {}", first.where, first.message);
  if (!first.hint.empty()) {
    text += fmt::format("; {}", first.hint);
  }
  text += fmt::format(" [{}]", first.code);
  const std::size_t more = diagnostics_.size() - 1;
  if (more > 0) {
    text += fmt::format(" (and {} more error{} above)", more, more == 1 ? "" : "s");
  }
  return text;
}

namespace config {
namespace {

/// Tabs as one space each and control characters as '?', so that a caret stands below its column.
std::string clean(std::string_view line) {
  std::string text(line);
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\t') {
      c = ' ';
    } else if (byte < 0x20 || byte == 0x7F) {
      c = '?';
    }
  }
  return text;
}

}  // namespace

Diagnostics::Diagnostics(std::string_view text, std::string file_name)
    : file_name_(std::move(file_name)) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    lines_.push_back(clean(line));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
}

int Diagnostics::add_source(std::string label) {
  labels_.push_back(clean(label));
  return static_cast<int>(labels_.size());
}

std::string Diagnostics::where(const Place& place) const {
  if (place.source < 0) {
    return "default";
  }
  if (place.source == 0) {
    return place.line > 0 ? fmt::format("{}:{}:{}", file_name_, place.line, place.column)
                          : file_name_;
  }
  return labels_[static_cast<std::size_t>(place.source - 1)];
}

void Diagnostics::add(std::string code, const Place& place, std::string_view message,
                      std::string_view hint) {
  // An error without a place (a missing key) concerns the file as a whole.
  Place known = place;
  if (known.source < 0) {
    known.source = 0;
  }
  Diagnostic diagnostic;
  diagnostic.code = std::move(code);
  diagnostic.where = where(known);
  diagnostic.message = clean(message);  // keys and values may hold line feeds
  diagnostic.hint = clean(hint);
  if (known.source == 0 && known.line > 0) {
    diagnostic.line = known.line;
    diagnostic.column = known.column;
    diagnostic.width = known.width;
    if (static_cast<std::size_t>(known.line) <= lines_.size()) {
      diagnostic.source_line = lines_[static_cast<std::size_t>(known.line - 1)];
    }
  }
  found_.push_back({known, std::move(diagnostic)});
}

std::vector<Diagnostic> Diagnostics::take() {
  std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
    return std::tie(a.place.source, a.place.line, a.place.column) <
           std::tie(b.place.source, b.place.line, b.place.column);
  });
  std::vector<Diagnostic> diagnostics;
  diagnostics.reserve(found_.size());
  for (Found& found : found_) {
    diagnostics.push_back(std::move(found.diagnostic));
  }
  found_.clear();
  return diagnostics;
}

}  // namespace config
}  // namespace isthmus
