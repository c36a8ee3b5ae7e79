// SPDX-License-Identifier: Apache-2.0
// What happened when: spans of compute, send, receive and wait, and of training state read from
// and written to files (train.offload), for the report's timeline and traces. Times are the
// runtime's (virtual under SimWorld). Implementations take calls from any task.
#pragma once

#include <cstdint>
#include <string_view>

#include "isthmus/types.h"

namespace isthmus {

enum class EventKind { kCompute, kSend, kReceive, kWait, kRead, kWrite };

struct Event {
  EventKind kind = EventKind::kCompute;
  WorkerId worker;    // who computes, sends, receives or waits
  WorkerId peer{-1};  // the other end, for kSend and kReceive
  TimePoint begin;
  TimePoint end;
  std::uint64_t bytes = 0;  // on the wire, for kSend and kReceive; of the files
  int fragment = -1;        // fragment it is about, or -1
  std::int64_t step = 0;    // inner step it belongs to (the sync's send step for transfers)
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void record(const Event& event) = 0;
};

}  // namespace isthmus
