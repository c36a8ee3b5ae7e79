// SPDX-License-Identifier: Apache-2.0
// The only includer of spdlog.
#include "core/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <mutex>

namespace isthmus {
namespace {

LogLevel level_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug:
      return LogLevel::kDebug;
    case spdlog::level::info:
      return LogLevel::kInfo;
    case spdlog::level::warn:
      return LogLevel::kWarning;
    default:
      return LogLevel::kError;
  }
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

/// Hands finished lines to a LogSink, or to stderr.
class ForwardingSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void forward_to(LogSink target) {
    const std::lock_guard lock(mutex_);
    target_ = std::move(target);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t buffer;
    formatter_->format(message, buffer);
    const std::string_view line(buffer.data(), buffer.size());
    if (target_) {
      target_(level_of(message.level), line);
    } else {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    }
  }
  void flush_() override {}

 private:
  LogSink target_;
};

struct Log {
  std::shared_ptr<ForwardingSink> sink = std::make_shared<ForwardingSink>();  // with the logger
  spdlog::logger logger{"isthmus", sink};
  Log() {
    logger.set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%H:%M:%S %L %v", spdlog::pattern_time_type::local, ""));
  }
};

Log& the_log() {
  static Log log;
  return log;
}

}  // namespace

void set_log_level(LogLevel level) { the_log().logger.set_level(level_of(level)); }

void set_log_sink(LogSink sink) { the_log().sink->forward_to(std::move(sink)); }

void log_line(LogLevel level, std::string_view text) {
  the_log().logger.log(level_of(level), text);
}

}  // namespace isthmus
