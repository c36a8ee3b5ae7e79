// SPDX-License-Identifier: Apache-2.0
#include "report/export/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/base/utf8_text.h"

namespace isthmus::report {
namespace {

/// Clocks of runs tick in nanoseconds: whole ones keep neighbouring slices from overlapping.
std::int64_t nanoseconds(double seconds) {
  constexpr double kMost = 9e9;  // 285 years, below the end of int64
  return std::llround(std::clamp(seconds, 0.0, kMost) * 1e9);
}
/// The format counts in microseconds.
std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

enum Group { kMain, kSends, kReceives, kGroups };
constexpr std::array<const char*, kGroups> kGroupNames = {"compute and wait", "send", "receive"};

Group group_of(SpanKind kind) {
  return kind == SpanKind::kSend ? kSends : kind == SpanKind::kReceive ? kReceives : kMain;
}

/// Events that a span may become: its slice, the ends of arrows, two changes of a counter.
std::size_t cost(const Span& span) {
  return span.kind == SpanKind::kSend ? 4 : span.kind == SpanKind::kReceive ? 2 : 1;
}

/// Which rounds are kept: a round is a step that sends, with the steps before it since the last
/// one.
class Sampling {
 public:
  Sampling(const std::vector<Span>& spans, std::size_t max_events) {
    for (const Span& span : spans) {
      if (group_of(span.kind) != kMain) ends_.push_back(span.step);
    }
    if (ends_.empty()) {
      for (const Span& span : spans) ends_.push_back(span.step);
    }
    std::sort(ends_.begin(), ends_.end());
    ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
    std::vector<std::size_t> costs(ends_.size() + 1);
    for (const Span& span : spans) costs[round_of(span)] += cost(span);
    for (; every_ < costs.size(); ++every_) {
      std::size_t kept = 0;
      for (std::size_t round = 0; round < costs.size(); round += every_) kept += costs[round];
      if (kept <= max_events) break;
    }
  }
  [[nodiscard]] bool keeps(const Span& span) const { return round_of(span) % every_ == 0; }
  [[nodiscard]] std::string note() const {
    return every_ == 1
               ? ""
               : fmt::format("one round in {} of {} is shown, whole; the others are left out",
                             every_, ends_.size());
  }

 private:
  [[nodiscard]] std::size_t round_of(const Span& span) const {
    return static_cast<std::size_t>(std::lower_bound(ends_.begin(), ends_.end(), span.step) -
                                    ends_.begin());
  }
  std::vector<std::int64_t> ends_;
  std::size_t every_ = 1;
};

/// A span on its row.
struct Slice {
  const Span* span = nullptr;
  std::int64_t begin = 0, end = 0;
  std::int64_t row = 0;  // within its group
  std::int64_t tid = 0;
};

struct Entry {
  std::int64_t ts = 0;
  int order = 0;  // at one time slices come before the arrows that hang on them
  std::string json;
};

class TraceWriter {
 public:
  explicit TraceWriter(const TraceInput& input) : input_(input) {}
  Trace write(std::size_t max_events);

 private:
  void choose(std::size_t max_events);
  void place_on_rows();
  void name_rows();
  void slices();
  void arrows();
  void counters();
  void add(std::int64_t ts, int order, std::string json) {
    entries_.push_back({ts, order, std::move(json)});
  }
  [[nodiscard]] std::string name(int worker) const {
    const auto index = static_cast<std::size_t>(worker);
    return worker >= 0 && index < input_.worker_names.size() ? input_.worker_names[index]
                                                             : fmt::format("worker {}", worker);
  }
  /// Process 0 is the idle one of an operating system.
  static int pid(int worker) { return worker + 1; }

  const TraceInput& input_;
  std::vector<Slice> slices_;  // by worker, group, begin
  std::vector<std::string> names_;
  std::vector<Entry> entries_;
  std::string note_;
};

void TraceWriter::choose(std::size_t max_events) {
  const Sampling sampling(input_.spans, max_events);
  note_ = sampling.note();
  std::size_t events = 0;
  for (const Span& span : input_.spans) {
    if (!sampling.keeps(span)) continue;
    if ((events += cost(span)) > max_events) {
      note_ += fmt::format("{}the rest of a round of more than {} events is left out",
                           note_.empty() ? "" : "; ", max_events);
      break;
    }
    slices_.push_back({&span, nanoseconds(span.begin_s), nanoseconds(span.end_s)});
  }
  if (std::isfinite(input_.cut_s)) {
    note_ += fmt::format("{}the run recorded nothing after {} s", note_.empty() ? "" : "; ",
                         input_.cut_s);
  }
}

void TraceWriter::place_on_rows() {
  const auto place = [](const Slice& slice) {
    return std::tuple{slice.span->worker, group_of(slice.span->kind), slice.begin, slice.end};
  };
  std::stable_sort(slices_.begin(), slices_.end(),
                   [&](const Slice& a, const Slice& b) { return place(a) < place(b); });
  std::vector<std::int64_t> row_ends;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    Slice& slice = slices_[i];
    if (i == 0 || slices_[i - 1].span->worker != slice.span->worker ||
        group_of(slices_[i - 1].span->kind) != group_of(slice.span->kind)) {
      row_ends.clear();
    }
    const auto free = std::find_if(row_ends.begin(), row_ends.end(),
                                   [&](std::int64_t end) { return end <= slice.begin; });
    slice.row = free - row_ends.begin();
    if (free == row_ends.end()) {
      row_ends.push_back(slice.end);
    } else {
      *free = slice.end;
    }
  }
}

/// Rows get thread ids that no other process has, in the order in which they are shown.
void TraceWriter::name_rows() {
  constexpr std::int64_t kRowsPerProcess = 100'000;
  std::map<std::tuple<int, Group, std::int64_t>, std::int64_t> tids;
  for (const Slice& slice : slices_) {
    tids[{slice.span->worker, group_of(slice.span->kind), slice.row}] = 0;
  }
  int worker = -1;
  std::int64_t tid = 0;
  for (auto& [row, row_tid] : tids) {
    const auto& [row_worker, group, number] = row;
    if (row_worker != worker) {
      worker = row_worker;
      tid = pid(worker) * kRowsPerProcess;
      names_.push_back(fmt::format(
          R"({{"name":"process_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
          pid(worker), tid, json_quote(name(worker))));
      names_.push_back(fmt::format(
          R"({{"name":"process_sort_index","ph":"M","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
          pid(worker), tid, worker));
    }
    row_tid = tid++;
    const std::string label = group == kMain && number == 0
                                  ? kGroupNames[kMain]
                                  : fmt::format("{} {}", kGroupNames[group], number + 1);
    names_.push_back(
        fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
                    pid(worker), row_tid, label));
    names_.push_back(fmt::format(
        R"({{"name":"thread_sort_index","ph":"M","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
        pid(worker), row_tid, row_tid));
  }
  for (Slice& slice : slices_) {
    slice.tid = tids[{slice.span->worker, group_of(slice.span->kind), slice.row}];
  }
}

void TraceWriter::slices() {
  for (const Slice& slice : slices_) {
    const Span& span = *slice.span;
    std::string label(span_name(span.kind));
    std::string more;
    if (group_of(span.kind) != kMain) {
      label += fmt::format(" {} {}", span.kind == SpanKind::kSend ? "to" : "from", name(span.peer));
      more = fmt::format(R"(,"bytes":{})", static_cast<std::int64_t>(span.bytes));
    }
    if (span.fragment >= 0) {
      more += fmt::format(R"(,"fragment":{})", span.fragment);
    }
    add(slice.begin, 0,
        fmt::format(
            R"({{"name":{},"cat":"{}","ph":"X","ts":{},"dur":{},"pid":{},"tid":{},"args":{{"step":{}{}}}}})",
            json_quote(label), span_name(span.kind), microseconds(slice.begin),
            microseconds(slice.end - slice.begin), pid(span.worker), slice.tid, span.step, more));
  }
}

/// The n-th send of so many bytes of a round from one worker to another is the n-th such receive.
void TraceWriter::arrows() {
  using Transfer = std::tuple<int, int, std::int64_t, std::int64_t, double>;
  std::map<Transfer, std::deque<const Slice*>> sends;
  const auto by_begin = [](const Slice* a, const Slice* b) { return a->begin < b->begin; };
  std::vector<const Slice*> receives;
  for (const Slice& slice : slices_) {
    const Span& span = *slice.span;
    if (slice.end == slice.begin) continue;  // nothing for an arrow to hang on
    if (span.kind == SpanKind::kSend) {
      sends[{span.worker, span.peer, span.fragment, span.step, span.bytes}].push_back(&slice);
    } else if (span.kind == SpanKind::kReceive) {
      receives.push_back(&slice);
    }
  }
  std::stable_sort(receives.begin(), receives.end(), by_begin);
  std::int64_t id = 0;
  for (const Slice* receive : receives) {
    const Span& span = *receive->span;
    const auto found = sends.find({span.peer, span.worker, span.fragment, span.step, span.bytes});
    if (found == sends.end() || found->second.empty()) continue;
    const Slice* send = found->second.front();
    found->second.pop_front();
    const std::int64_t arrival = std::max(send->begin, receive->begin);
    if (arrival >= receive->end) continue;
    const auto end = [&](const char* phase, std::int64_t ts, const Slice* slice, const char* more) {
      return fmt::format(
          R"({{"name":"transfer","cat":"transfer","ph":"{}","id":{},"ts":{},"pid":{},"tid":{}{}}})",
          phase, id, microseconds(ts), pid(slice->span->worker), slice->tid, more);
    };
    ++id;
    add(send->begin, 2, end("s", send->begin, send, ""));
    add(arrival, 3, end("f", arrival, receive, R"(,"bp":"e")"));
  }
}

void TraceWriter::counters() {
  struct Change {
    double bits_per_ns = 0;
    int transfers = 0;
  };
  std::map<std::pair<int, int>, std::map<std::int64_t, Change>> links;
  for (const Slice& slice : slices_) {
    const Span& span = *slice.span;
    if (span.kind != SpanKind::kSend || slice.end == slice.begin) continue;
    const double rate = span.bytes * 8 / static_cast<double>(slice.end - slice.begin);
    std::map<std::int64_t, Change>& link = links[{span.worker, span.peer}];
    Change& begin = link[slice.begin];
    begin.bits_per_ns += rate;
    ++begin.transfers;
    Change& end = link[slice.end];
    end.bits_per_ns -= rate;
    --end.transfers;
  }
  for (const auto& [ends, changes] : links) {
    const std::string label =
        json_quote(fmt::format("{}->{} Mbit/s", name(ends.first), name(ends.second)));
    double rate = 0;
    int transfers = 0;
    for (const auto& [ts, change] : changes) {
      transfers += change.transfers;
      rate = transfers == 0 ? 0 : rate + change.bits_per_ns;  // no residue of rounding when idle
      add(ts, 1,
          fmt::format(R"({{"name":{},"ph":"C","ts":{},"pid":{},"args":{{"Mbit/s":{:.3f}}}}})",
                      label, microseconds(ts), pid(ends.first), rate * 1000));
    }
  }
}

Trace TraceWriter::write(std::size_t max_events) {
  choose(max_events);
  place_on_rows();
  name_rows();
  slices();
  arrows();
  counters();
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.ts, a.order) < std::tie(b.ts, b.order);
  });
  Trace trace{.events = entries_.size(), .note = note_};
  trace.json = fmt::format(R"({{"displayTimeUnit":"ms","otherData":{{"clock":"{}","note":{}}},)",
                           input_.simulated ? "simulated" : "real", json_quote(note_));
  trace.json += "\"traceEvents\":[\n";
  const char* separator = "";
  const auto append = [&](const std::string& json) {
    trace.json += separator + json;
    separator = ",\n";
  };
  for (const std::string& each : names_) append(each);
  for (const Entry& each : entries_) append(each.json);
  trace.json += "\n]}\n";
  return trace;
}

}  // namespace

Trace trace_json(const TraceInput& input, std::size_t max_events) {
  return TraceWriter(input).write(max_events);
}

}  // namespace isthmus::report
