// SPDX-License-Identifier: Apache-2.0
#include "data/control_count.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/units.h"

namespace isthmus {
namespace {

// Texts of every encoding of one or two bytes have next to no control characters; compressed or
// executable files have one byte in nine.
constexpr std::int64_t kOneIn = 50;

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r' && byte != '\f') ||
         byte == 0x7f;
}

void add(ControlCount& count, std::string_view text, std::string_view file) {
  const std::int64_t controls = std::ranges::count_if(text, is_control);
  if (controls > 0 && count.first_file.empty()) count.first_file = file;
  count.bytes += std::ssize(text);
  count.controls += controls;
}

}  // namespace

void ControlCount::add_text(std::string_view text, std::string_view file, std::int64_t first) {
  add(*this, text, file);
  add_nuls(text, file, first);
}

void ControlCount::add_nuls(std::string_view text, std::string_view file, std::int64_t first) {
  nuls += std::ranges::count(text, '\0');
  if (const std::size_t at = text.find('\0'); first_nul.empty() && at != std::string_view::npos) {
    first_nul = fmt::format("{}: byte {}", file, first + static_cast<std::int64_t>(at));
  }
}

void ControlCount::add_line(std::string_view text, std::string_view file, std::int64_t number) {
  add(*this, text, file);
  const std::int64_t here = std::ranges::count(text, '\0');
  if (here > 0 && first_nul.empty()) first_nul = fmt::format("{}:{}", file, number);
  nuls += here;
  escaped = escaped || here > 0;
}

ControlCount& ControlCount::operator+=(const ControlCount& later) {
  bytes += later.bytes;
  controls += later.controls;
  nuls += later.nuls;
  escaped = escaped || later.escaped;
  whole = whole && later.whole;
  if (first_file.empty()) first_file = later.first_file;
  if (first_nul.empty()) first_nul = later.first_nul;
  return *this;
}

std::string controls_note(const ControlCount& count, std::string_view use) {
  if (count.controls * kOneIn > count.bytes) {
    return fmt::format(
        "{} of the {} bytes looked at are control characters, the first in {}; a text hardly has "
        "them: {}",
        with_commas(count.controls), with_commas(count.bytes), count.first_file, use);
  }
  if (count.nuls == 0) return {};
  return fmt::format(
      "{}: a NUL character, the first of {}{}: no text has them; the file was cut off, has records "
      "that NULs divide, or is no text: {}; tr -d '\\000' removes them{}",
      count.first_nul, with_commas(count.nuls), count.whole ? "" : " in what was looked at", use,
      count.escaped ? ", and sed 's/\\\\u0000//g' their escapes in JSON lines" : "");
}

}  // namespace isthmus
