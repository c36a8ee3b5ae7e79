// SPDX-License-Identifier: Apache-2.0
// Time spans of a run, for the report's timeline and traces: compute, send, receive, wait, and
// reads and writes of training state in files (train.offload). Times are the runtime's (virtual
// under SimWorld). Implementations take calls from any task.
#pragma once

#include <cstdint>
#include <string_view>

#include "isthmus/types.h"

namespace isthmus {

enum class EventKind { kCompute, kSend, kReceive, kWait, kRead, kWrite };

struct Event {
  EventKind kind = EventKind::kCompute;
  WorkerId worker;    // the worker that computes, sends, receives or waits
  WorkerId peer{-1};  // the other end, for kSend and kReceive
  TimePoint begin;
  TimePoint end;
  std::uint64_t bytes = 0;  // on the wire, for kSend and kReceive; in files, for kRead and kWrite
  int fragment = -1;        // its fragment, or -1
  std::int64_t step = 0;    // its inner step (the sync's send step for transfers)
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void record(const Event& event) = 0;
};

}  // namespace isthmus
