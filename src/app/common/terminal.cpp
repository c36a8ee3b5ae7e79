// SPDX-License-Identifier: Apache-2.0
#include "app/common/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

namespace isthmus::app {
namespace {

constexpr std::size_t kDefaultWidth = 80;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view(value);
}

/// The variable that decides the character set: the first of these that is set.
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (!value.empty()) {
      return value.find("UTF-8") != std::string_view::npos ||
             value.find("utf8") != std::string_view::npos;
    }
  }
  return false;
}

std::string_view escape_of(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\x1b[1m";
    case Style::kDim:
      return "\x1b[2m";
    case Style::kGood:
      return "\x1b[32m";
    case Style::kWarn:
      return "\x1b[33m";
    case Style::kBad:
      return "\x1b[31m";
    case Style::kAccent:
      return "\x1b[36m";
  }
  return "";
}
constexpr std::string_view kReset = "\x1b[0m";

/// Length of the escape sequence at the start of `text`, or 0.
std::size_t escape_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) {
    return 0;
  }
  std::size_t i = 2;
  while (i < text.size() && !(text[i] >= '@' && text[i] <= '~')) {
    ++i;
  }
  return std::min(i + 1, text.size());
}

std::size_t code_point_length(std::string_view text) {
  std::size_t i = 1;
  while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) {
    ++i;
  }
  return i;
}

}  // namespace

Terminal::Terminal(int descriptor, ColorMode color) : descriptor_(descriptor) {
  const bool terminal = ::isatty(descriptor) == 1 && environment("TERM") != "dumb";
  interactive_ = terminal;
  color_ = color == ColorMode::kAlways ||
           (color == ColorMode::kAuto && terminal && environment("NO_COLOR").empty());
  unicode_ = locale_is_utf8();
}

std::size_t Terminal::width() const {
  winsize size{};
  if (::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return kDefaultWidth;
}

std::string Terminal::paint(Style style, std::string_view text) const {
  if (!color_ || style == Style::kPlain) {
    return std::string(text);
  }
  return fmt::format("{}{}{}", escape_of(style), text, kReset);
}

std::string Terminal::bar(double fraction, std::size_t columns) const {
  fraction = std::isfinite(fraction) ? std::clamp(fraction, 0., 1.) : 0.;
  const auto full = static_cast<std::size_t>(fraction * static_cast<double>(columns) + 0.5);
  const auto repeat = [](std::string_view mark, std::size_t times) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) {
      text += mark;
    }
    return text;
  };
  if (unicode_ && color_) {
    return paint(Style::kAccent, repeat("\u2501", full)) +
           paint(Style::kDim, repeat("\u2501", columns - full));
  }
  return repeat(unicode_ ? "\u2588" : "#", full) +
         repeat(unicode_ ? "\u2591" : "-", columns - full);
}

void Terminal::write(std::string_view text) {
  const std::lock_guard lock(mutex_);
  while (!text.empty() && error_ == 0) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
      error_ = errno;
    }
  }
}

int Terminal::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const std::size_t escape = escape_length(text);
    columns += escape == 0 ? 1 : 0;
    text.remove_prefix(escape == 0 ? code_point_length(text) : escape);
  }
  return columns;
}

std::string cut_to_width(std::string_view text, std::size_t columns) {
  if (display_width(text) <= columns) {
    return std::string(text);
  }
  std::string cut;
  bool painted = false;
  std::size_t used = 0;
  while (!text.empty()) {
    const std::size_t escape = escape_length(text);
    const std::size_t length = escape == 0 ? code_point_length(text) : escape;
    if (escape == 0 && ++used > columns) {
      break;
    }
    painted = painted || escape != 0;
    cut += text.substr(0, length);
    text.remove_prefix(length);
  }
  return painted ? cut + std::string(kReset) : cut;
}

std::string StatusBlock::redrawn() const {
  std::string text;
  const std::size_t columns = terminal_.width();
  for (const std::string& line : lines_) {
    // One column stays free: a full last column makes some terminals wrap.
    text += cut_to_width(line, columns > 1 ? columns - 1 : 1);
    text += "\x1b[K\n";
  }
  return text + "\x1b[J";
}

void StatusBlock::draw(const std::vector<std::string>& lines) {
  const std::lock_guard lock(mutex_);
  const std::string up = standing_ > 0 ? fmt::format("\x1b[{}A\r", standing_) : "\r";
  lines_ = lines;
  standing_ = lines_.size();
  terminal_.write(up + redrawn());
}

void StatusBlock::print_above(std::string_view text) {
  const std::lock_guard lock(mutex_);
  std::string output = standing_ > 0 ? fmt::format("\x1b[{}A\r\x1b[J", standing_) : "";
  output += text;
  if (!text.ends_with('\n')) {
    output += '\n';
  }
  terminal_.write(standing_ > 0 ? output + redrawn() : output);
}

void StatusBlock::finish(bool keep) {
  const std::lock_guard lock(mutex_);
  if (!keep && standing_ > 0) {
    terminal_.write(fmt::format("\x1b[{}A\r\x1b[J", standing_));
  }
  lines_.clear();
  standing_ = 0;
}

}  // namespace isthmus::app
