// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl and events.jsonl, line by line.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <queue>
#include <tuple>
#include <utility>

#include "core/base/json_input.h"
#include "record/event_log.h"
#include "report/data/json_fields.h"
#include "report/data/run_data.h"

namespace isthmus::report {
namespace {

constexpr int kMostWorkers = 4096;
constexpr std::size_t kMaxNotes = 50;

/// Lines that could not be used, told once per file instead of once per line.
struct DamagedLines {
  std::int64_t count = 0;
  std::int64_t first = 0;
  bool only_last = false;

  void add(std::int64_t line, bool last) {
    if (count++ == 0) {
      first = line;
      only_last = last;
    } else {
      only_last = false;
    }
  }
  void tell(const std::string& file, RunData& run) const {
    if (count == 0) {
      return;
    }
    if (count == 1 && only_last) {
      run.warnings.push_back(fmt::format(
          "{}: the last line is cut off (the run was stopped, or is still writing): skipped",
          file));
      return;
    }
    run.warnings.push_back(fmt::format("{}: {} damaged {} skipped, the first is line {}", file,
                                       count, count == 1 ? "line" : "lines", first));
  }
};

/// Calls `use(object)` for each line that is a JSON object; false from `use` counts as damage.
template <typename Use>
bool each_line(const std::filesystem::path& file, RunData& run, Use use) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    return false;
  }
  DamagedLines damaged;
  std::string line;
  std::int64_t number = 0;
  while (std::getline(in, line)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    const Json object = read_json(line);
    if (object.is_discarded() || !object.is_object() || !use(object)) {
      damaged.add(number, in.peek() == std::ifstream::traits_type::eof());
    }
  }
  damaged.tell(file.filename().string(), run);
  return true;
}

TrainPoint train_point(const Json& line) {
  return {.step = integer_at(line, "step", 0),
          .loss = number_at(line, "loss"),
          .learning_rate = number_at(line, "lr"),
          .gradient_norm = number_at(line, "grad_norm"),
          .tokens_per_s = number_at(line, "tok_s"),
          .tokens = number_at(line, "tokens"),
          .unix_s = number_at(line, "t"),
          .simulated_s = number_at(line, "ts")};
}

std::vector<std::pair<std::string, double>> losses_of_sources(const Json& line) {
  std::vector<std::pair<std::string, double>> losses;
  for (const auto& [name, of_source] : object_at(line, "sources").items()) {
    if (of_source.is_object()) losses.emplace_back(name, number_at(of_source, "loss"));
  }
  return losses;
}

EvalPoint eval_point(const Json& line) {
  return {.step = integer_at(line, "step", 0),
          .loss = number_at(line, "loss"),
          .perplexity = number_at(line, "ppl"),
          .tokens = number_at(line, "n_tokens"),
          .simulated_s = number_at(line, "ts"),
          .payload_bytes = number_at(line, "bytes_payload"),
          .wire_bytes = number_at(line, "bytes_wire"),
          .sources = losses_of_sources(line)};
}

RoundRecord round_record(const Json& line) {
  const std::int64_t step = integer_at(line, "step", 0);
  return {.fragment = integer_at(line, "frag", 0),
          .sent = integer_at(line, "step_send", step),
          .applied = integer_at(line, "step_apply", step),
          .payload_bytes = number_at(line, "bytes_payload", 0),
          .wire_bytes = number_at(line, "bytes_wire", 0),
          .members = number_at(line, "members"),
          .codec = text_at(line, "codec"),
          .delta_norm = number_at(line, "delta_norm"),
          .wait_s = number_at(line, "wait_s"),
          .codec_error = number_at(line, "err"),
          .cosine = number_at(line, "cos"),
          .closing = flag_at(line, "closing")};
}

MembershipRecord membership_record(const Json& line) {
  return {.step = integer_at(line, "step", 0),
          .what = text_at(line, "what"),
          .site = text_at(line, "site"),
          .why = text_at(line, "why"),
          .sites = number_at(line, "sites"),
          .tokens_kept = number_at(line, "tokens_kept"),
          .tokens_lost = number_at(line, "tokens_lost"),
          .steps_alone = number_at(line, "steps_alone"),
          .tokens_alone = number_at(line, "tokens_alone")};
}

bool use_metric(const Json& line, RunData& run) {
  const std::string kind = text_at(line, "k");
  if (kind == "train") {
    run.train.push_back(train_point(line));
    return run.train.back().step > 0;
  }
  if (kind == "eval") {
    run.evals.push_back(eval_point(line));
  } else if (kind == "round") {
    run.rounds.push_back(round_record(line));
  } else if (kind == "event" && line.contains("site")) {
    run.membership.push_back(membership_record(line));
  } else if (kind == "end") {
    run.end_status = text_at(line, "status");
    if (run.end_status.empty()) {
      run.end_status = "ended";
    }
  } else if (kind == "warn") {
    const std::string text = text_at(line, "text");
    const std::string message = text.empty() ? text_at(line, "message") : text;
    if (run.notes.size() < kMaxNotes) {
      run.notes.push_back(message.empty() ? scalar_text(line) : message);
    }
  } else if (kind == "meta") {
    run.method = text_at(line, "method");
    run.workers =
        static_cast<int>(std::clamp<std::int64_t>(integer_at(line, "workers", 0), 0, kMostWorkers));
  }
  return !kind.empty();  // kinds of later versions pass by unread
}

/// Sorts by `key` and keeps the last of equal ones, as written.
template <typename Record, typename Key>
void keep_last_of_each(std::vector<Record>& records, Key key) {
  std::stable_sort(records.begin(), records.end(),
                   [&](const Record& a, const Record& b) { return key(a) < key(b); });
  std::vector<Record> kept;
  kept.reserve(records.size());
  for (Record& record : records) {
    if (!kept.empty() && key(kept.back()) == key(record)) {
      kept.back() = std::move(record);
    } else {
      kept.push_back(std::move(record));
    }
  }
  records = std::move(kept);
}

/// After a resume the steps since the checkpoint are written again: the later line holds.
void settle_repeated_lines(RunData& run) {
  const std::size_t before = run.train.size();
  keep_last_of_each(run.train, [](const TrainPoint& point) { return point.step; });
  keep_last_of_each(run.evals, [](const EvalPoint& point) { return point.step; });
  keep_last_of_each(run.rounds, [](const RoundRecord& round) {
    return std::tuple{round.applied, round.sent, round.fragment};
  });
  if (run.train.size() != before) {
    run.warnings.push_back(
        fmt::format("metrics.jsonl: {} steps are written more than once (a "
                    "resumed run); the last line of each is used",
                    before - run.train.size()));
  }
}

/// Keeps the kMaxSpans spans that begin first, whatever the order of the file.
class EarliestSpans {
 public:
  void offer(const Span& span) {
    if (heap_.size() < kMaxSpans) {
      heap_.push(span);
    } else if (span.begin_s < heap_.top().begin_s) {
      heap_.pop();
      heap_.push(span);
    }
  }
  [[nodiscard]] std::vector<Span> take() {
    std::vector<Span> spans;
    spans.reserve(heap_.size());
    for (; !heap_.empty(); heap_.pop()) {
      spans.push_back(heap_.top());
    }
    std::reverse(spans.begin(), spans.end());
    return spans;
  }

 private:
  struct Later {
    bool operator()(const Span& a, const Span& b) const { return a.begin_s < b.begin_s; }
  };
  std::priority_queue<Span, std::vector<Span>, Later> heap_;
};

}  // namespace

std::string_view span_name(SpanKind kind) { return app::event_name(kind); }

void read_metrics(const std::filesystem::path& file, RunData& run) {
  if (!each_line(file, run, [&](const Json& line) { return use_metric(line, run); })) {
    run.warnings.push_back(
        fmt::format("{} cannot be read: no losses, no rounds", file.filename().string()));
    return;
  }
  std::erase_if(run.train, [](const TrainPoint& point) { return point.step <= 0; });
  settle_repeated_lines(run);
  if (run.train.empty()) {
    run.warnings.push_back("metrics.jsonl holds no training step yet");
  }
  const auto lost = std::count_if(run.train.begin(), run.train.end(),
                                  [](const TrainPoint& p) { return !std::isfinite(p.loss); });
  if (lost > 0) {
    run.warnings.push_back(
        fmt::format("{} of {} training losses are not finite (the run diverged): not drawn", lost,
                    run.train.size()));
  }
}

void read_events(const std::filesystem::path& file, RunData& run) {
  EarliestSpans earliest;
  const bool found = each_line(file, run, [&](const Json& line) {
    if (text_at(line, "k") == "cut") {
      run.spans_cut_s = number_at(line, "t0", 0);
      return true;
    }
    if (text_at(line, "k") == "read" || text_at(line, "k") == "write") {
      return true;  // training state in files: beside the computing, so no step's time
    }
    const std::optional<Span> found_span = span_of(line);
    if (!found_span || found_span->worker >= kMostWorkers) {
      return false;
    }
    const Span& span = *found_span;
    const auto worker = static_cast<std::size_t>(span.worker);
    if (run.times.size() <= worker) {
      run.times.resize(worker + 1);
    }
    run.times[worker].seconds[static_cast<int>(span.kind)] += span.end_s - span.begin_s;
    run.last_span_end_s =
        std::isnan(run.last_span_end_s) ? span.end_s : std::max(run.last_span_end_s, span.end_s);
    ++run.span_count;
    earliest.offer(span);
    return true;
  });
  if (!found) {
    run.warnings.push_back("events.jsonl is missing: no timeline");
  }
  run.spans = earliest.take();
}

}  // namespace isthmus::report
