// SPDX-License-Identifier: Apache-2.0
// Spans of a run as a Chrome trace (JSON object form), for Perfetto and chrome://tracing.
//
// One process a worker, with a row for compute and wait, and as many rows for sends and for
// receives as overlap: readers drop overlapping slices of one row. Arrows go from each send to its
// receive; a counter per link shows the Mbit/s in flight. Pure function of its input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/data/run_data.h"

namespace isthmus::report {

struct TraceInput {
  std::vector<Span> spans;                // any order
  std::vector<std::string> worker_names;  // by worker; missing ones are "worker N"
  bool simulated = false;
  double cut_s = kNothing;  // the run itself left out later spans
};

struct Trace {
  std::string json;
  std::size_t events = 0;  // without names of processes and rows
  std::string note;        // the left-out part, or empty; also in the trace
};

inline constexpr std::size_t kMaxTraceEvents = 200'000;

/// At most `max_events` events: if there are more, every n-th round (a send step with the steps
/// before it) is kept whole.
[[nodiscard]] Trace trace_json(const TraceInput& input, std::size_t max_events = kMaxTraceEvents);

}  // namespace isthmus::report
