// SPDX-License-Identifier: Apache-2.0
// events.jsonl: a line for each span of time, for the report's timeline.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "core/base/events.h"
#include "record/run_directory.h"

namespace isthmus::app {

/// "k" of a line.
[[nodiscard]] constexpr std::string_view event_name(EventKind kind) {
  switch (kind) {
    case EventKind::kCompute:
      return "compute";
    case EventKind::kSend:
      return "send";
    case EventKind::kReceive:
      return "receive";
    case EventKind::kWait:
      return "wait";
    case EventKind::kRead:
      return "read";
    case EventKind::kWrite:
      return "write";
  }
  return "";
}

class EventLog final : public EventSink {
 public:
  /// `offset`: the run's clock before a resume.
  EventLog(JsonLinesFile file, Duration offset);
  /// Any thread. After kMaxEvents lines a last one tells that the rest is left out.
  void record(const Event& event) override;

  static constexpr std::int64_t kMaxEvents = 200'000;
  /// The most reads and writes of files (train.offload) among them, which may be many a step;
  /// further ones are left out silently, while the concurrent computing is still recorded.
  static constexpr std::int64_t kMaxFileEvents = 50'000;

 private:
  JsonLinesFile file_;
  Duration offset_;
  std::mutex mutex_;
  std::int64_t written_ = 0;
  std::int64_t of_files_ = 0;
};

}  // namespace isthmus::app
