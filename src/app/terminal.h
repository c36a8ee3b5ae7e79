// SPDX-License-Identifier: Apache-2.0
// What a stream can show: is it a terminal, how wide, may it be coloured. And a block of lines that
// is redrawn in place while log lines scroll above it.
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

  /// True where lines can be redrawn: a terminal that is not "dumb".
  [[nodiscard]] bool interactive() const { return interactive_; }
  [[nodiscard]] bool color() const { return color_; }
  /// Columns; 80 when not a terminal. Asked anew at each call, so a resize is seen.
  [[nodiscard]] std::size_t width() const;
  /// `text` in `style`, or unchanged without colour.
  [[nodiscard]] std::string paint(Style style, std::string_view text) const;
  /// Writes all of it; a closed pipe ends the output silently. Any thread.
  void write(std::string_view text);

 private:
  int descriptor_;
  bool interactive_ = false;
  bool color_ = false;
  std::mutex mutex_;
};

/// Columns that `text` takes on a terminal: escape sequences take none, UTF-8 code points one.
[[nodiscard]] std::size_t display_width(std::string_view text);
/// `text` cut to `columns`, escape sequences kept whole and reset at the end.
[[nodiscard]] std::string cut_to_width(std::string_view text, std::size_t columns);
/// "[#####-----]" of `columns` in all, `fraction` clamped to [0, 1].
[[nodiscard]] std::string bar(double fraction, std::size_t columns);

/// Lines at the bottom of a terminal, redrawn in place. Used only where `interactive()`. Any
/// thread.
class StatusBlock {
 public:
  explicit StatusBlock(Terminal& terminal) : terminal_(terminal) {}
  /// Replaces the block; lines are cut to the width.
  void draw(const std::vector<std::string>& lines);
  /// Prints whole lines above the block.
  void print_above(std::string_view text);
  /// Takes the block away, or leaves its last state standing and moves below it.
  void finish(bool keep);

 private:
  [[nodiscard]] std::string erase() const;
  Terminal& terminal_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace isthmus::app
