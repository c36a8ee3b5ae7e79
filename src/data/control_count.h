// SPDX-License-Identifier: Apache-2.0
// Control characters of texts. A text hardly has any, and never a NUL: a file with NULs was cut off
// by a crash, has records that NULs divide, or is no text. All readers of texts and conversations
// count them and warn in the same words. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace isthmus {

struct ControlCount {
  std::int64_t bytes = 0;     // looked at
  std::int64_t controls = 0;  // NULs too; not tabs, line ends, form feeds
  std::int64_t nuls = 0;
  bool escaped = false;         // some NULs were written as \u0000, in JSON lines
  bool whole = true;            // false: parts of large files were not looked at
  std::string first_file = {};  // of the first text with a control character
  std::string first_nul = {};   // "FILE: byte 40" or "FILE:3" (line 3)

  /// A stretch of a text that begins with byte `first` of `file`.
  void add_text(std::string_view text, std::string_view file, std::int64_t first);
  /// Counts its NULs alone.
  void add_nuls(std::string_view text, std::string_view file, std::int64_t first);
  /// The text of line `number` of `file`.
  void add_line(std::string_view text, std::string_view file, std::int64_t number);
  /// Counts of what comes later.
  ControlCount& operator+=(const ControlCount& later);
};

/// One sentence where `count` is not that of texts; else empty. use: what becomes of them, and what
/// to do where they are no text: "the model learns them; ...".
[[nodiscard]] std::string controls_note(const ControlCount& count, std::string_view use);

}  // namespace isthmus
