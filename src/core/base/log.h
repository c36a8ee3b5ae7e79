// SPDX-License-Identifier: Apache-2.0
// Log lines for people, on stderr: `12:04:11 W text`. One process-wide logger (implemented by
// spdlog); a sink can receive its lines, so that they scroll above a status block. Any thread.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>

namespace isthmus {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Lines below `level` are dropped. Default: kInfo.
void set_log_level(LogLevel level);

/// Receives finished lines without a newline; empty: stderr. The sink is called under a lock.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;
void set_log_sink(LogSink sink);

void log_line(LogLevel level, std::string_view text);

template <typename... Values>
void log_debug(fmt::format_string<Values...> format, Values&&... values) {
  log_line(LogLevel::kDebug, fmt::format(format, std::forward<Values>(values)...));
}
template <typename... Values>
void log_info(fmt::format_string<Values...> format, Values&&... values) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Values>(values)...));
}
template <typename... Values>
void log_warning(fmt::format_string<Values...> format, Values&&... values) {
  log_line(LogLevel::kWarning, fmt::format(format, std::forward<Values>(values)...));
}
template <typename... Values>
void log_error(fmt::format_string<Values...> format, Values&&... values) {
  log_line(LogLevel::kError, fmt::format(format, std::forward<Values>(values)...));
}

}  // namespace isthmus
