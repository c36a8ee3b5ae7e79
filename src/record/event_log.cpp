// SPDX-License-Identifier: Apache-2.0
#include "record/event_log.h"

#include <chrono>
#include <utility>

namespace isthmus::app {
EventLog::EventLog(JsonLinesFile file, Duration offset) : file_(std::move(file)), offset_(offset) {}

void EventLog::record(const Event& event) {
  const auto seconds = [this](TimePoint time) {
    return in_seconds(time.time_since_epoch() + offset_);
  };
  const std::lock_guard lock(mutex_);
  if (written_ > kMaxEvents) {
    return;
  }
  const bool of_files = event.kind == EventKind::kRead || event.kind == EventKind::kWrite;
  if (of_files && of_files_++ >= kMaxFileEvents) {
    return;
  }
  JsonLine line;
  if (written_++ == kMaxEvents) {
    line.add("k", "cut").add("step", event.step).add("t0", seconds(event.begin));
    file_.append(line);
    return;
  }
  line.add("k", event_name(event.kind)).add("w", event.worker.value());
  if (event.peer.value() >= 0) {
    line.add("peer", event.peer.value());
  }
  line.add("t0", seconds(event.begin)).add("t1", seconds(event.end));
  if (event.bytes > 0) {
    line.add("bytes", event.bytes);
  }
  if (event.fragment >= 0) {
    line.add("frag", event.fragment);
  }
  line.add("step", event.step);
  file_.append(line);
}

}  // namespace isthmus::app
