// SPDX-License-Identifier: Apache-2.0
// The abilities of an output stream: terminal or not, width, colours. And a block of lines that is
// redrawn in place while log lines scroll above it.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace isthmus::app {

enum class ColorMode { kAuto, kAlways, kNever };
enum class Style { kPlain, kBold, kDim, kGood, kWarn, kBad, kAccent };

class Terminal {
 public:
  /// A view of an open descriptor (1 or 2), which is not closed. kAuto obeys NO_COLOR and
  /// TERM=dumb.
  Terminal(int descriptor, ColorMode color);

  /// True if lines can be redrawn: a terminal that is not "dumb".
  [[nodiscard]] bool interactive() const { return interactive_; }
  [[nodiscard]] bool color() const { return color_; }
  /// True if the locale is UTF-8, so that lines may contain more than ASCII.
  [[nodiscard]] bool unicode() const { return unicode_; }
  /// Columns; 80 if it is no terminal or does not tell. Read at each call, so that a resize is
  /// seen.
  [[nodiscard]] std::size_t width() const;
  /// `text` in `style`, or unchanged without colour.
  [[nodiscard]] std::string paint(Style style, std::string_view text) const;
  /// `fraction`, clamped to [0, 1], as a bar of `columns`.
  [[nodiscard]] std::string bar(double fraction, std::size_t columns) const;
  /// Writes all of it and blocks while the reader is slow. After a failure this and all later text
  /// is dropped, and `error` says why. Any thread.
  void write(std::string_view text);
  /// errno of the first failed write, or 0.
  [[nodiscard]] int error() const;

 private:
  int descriptor_;
  bool interactive_ = false;
  bool color_ = false;
  bool unicode_ = false;
  mutable std::mutex mutex_;
  int error_ = 0;
};

/// Columns of `text` on a terminal: escape sequences take none, UTF-8 code points one.
[[nodiscard]] std::size_t display_width(std::string_view text);
/// `text` if it fits into `columns`, unchanged; else its beginning, escape sequences kept whole
/// and, if there are any, a reset at the end.
[[nodiscard]] std::string cut_to_width(std::string_view text, std::size_t columns);
/// Lines at the bottom of a terminal, redrawn in place. Used only where `interactive()`. Any
/// thread.
class StatusBlock {
 public:
  explicit StatusBlock(Terminal& terminal) : terminal_(terminal) {}
  /// Replaces the block. Lines are cut to the width less one column, since some terminals wrap a
  /// line that fills the last column.
  void draw(const std::vector<std::string>& lines);
  /// Prints text above the block, with a newline at its end if it has none.
  void print_above(std::string_view text);
  /// Removes the block, or (`keep`) leaves its last state and moves below it.
  void finish(bool keep);

 private:
  [[nodiscard]] std::string redrawn() const;
  Terminal& terminal_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::size_t standing_ = 0;  // lines of the block on the screen
};

}  // namespace isthmus::app
