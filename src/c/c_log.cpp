// SPDX-License-Identifier: Apache-2.0
// The log, kept for the caller to take.
#include <fmt/format.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "c/c_errors.h"
#include "core/base/log.h"

namespace isthmus::c {
namespace {

constexpr std::size_t kMostLines = 4096;

struct Line {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};

/// Of the process, as the log is.
class KeptLines {
 public:
  void add(LogLevel level, std::string_view line) {
    const std::scoped_lock lock(mutex_);
    if (lines_.size() == kMostLines) {
      lines_.pop_front();
      ++lost_;
    }
    lines_.push_back({level, std::string(line)});
  }
  [[nodiscard]] std::size_t waiting() const {
    const std::scoped_lock lock(mutex_);
    return lines_.size();
  }
  [[nodiscard]] std::pair<std::deque<Line>, std::size_t> take() {
    const std::scoped_lock lock(mutex_);
    return {std::exchange(lines_, {}), std::exchange(lost_, 0)};
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Line> lines_;
  std::size_t lost_ = 0;
};

/// Never destroyed: a thread of a run that could not be ended may log until the process ends.
KeptLines& kept() {
  static KeptLines* const lines = new KeptLines;
  return *lines;
}

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "info";
}

/// Without the time and the level's letter, `12:04:11 W text`.
std::string text_of(const std::string& line) {
  constexpr std::size_t kTime = 8, kBegin = 11;
  const bool stamped = line.size() > kBegin && line[2] == ':' && line[5] == ':' &&
                       line[kTime] == ' ' && line[kBegin - 1] == ' ';
  return stamped ? line.substr(kBegin) : line;
}

}  // namespace
}  // namespace isthmus::c

void isthmus_log_keep(int32_t keep) {
  if (keep == 0) {
    isthmus::set_log_sink({});
    return;
  }
  isthmus::set_log_sink(
      [](isthmus::LogLevel level, std::string_view line) { isthmus::c::kept().add(level, line); });
}

int64_t isthmus_log_waiting() { return static_cast<int64_t>(isthmus::c::kept().waiting()); }

isthmus_error* isthmus_log_take(char** json) {
  return isthmus::c::guarded([&] {
    isthmus::c::require(json, "isthmus_log_take", "json");
    const auto [lines, lost] = isthmus::c::kept().take();
    auto array = nlohmann::ordered_json::array();
    if (lost > 0)
      array.push_back(
          {{"level", "warning"}, {"text", fmt::format("{} lines of the log were lost", lost)}});
    for (const isthmus::c::Line& each : lines)
      array.push_back(
          {{"level", isthmus::c::name_of(each.level)}, {"text", isthmus::c::text_of(each.text)}});
    *json = isthmus::c::owned_text(
        array.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  });
}
