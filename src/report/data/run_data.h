// SPDX-License-Identifier: Apache-2.0
// The content of a run directory, read once into plain values. Reading never fails half-way: a
// missing file leaves its part empty, a damaged line is skipped, and each gets a line in
// `warnings`. Absent, null and non-finite numbers are NaN (infinities stay infinities).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/check.h"
#include "core/base/events.h"
#include "record/no_value.h"

namespace isthmus::report {

struct TrainPoint {
  std::int64_t step = 0;
  double loss = kNothing;
  double learning_rate = kNothing;
  double gradient_norm = kNothing;
  double tokens_per_s = kNothing;
  double tokens = kNothing;
  double unix_s = kNothing;       // real clock
  double simulated_s = kNothing;  // virtual clock; NaN in a real run
};

struct EvalPoint {
  std::int64_t step = 0;
  double loss = kNothing;
  double perplexity = kNothing;
  double tokens = kNothing;
  double simulated_s = kNothing;
  double payload_bytes = kNothing;  // by the worker that has sent most
  double wire_bytes = kNothing;
  std::vector<std::pair<std::string, double>> sources = {};  // loss of each of data.mix, by name
};

/// One round as its sender saw it. Bytes are those of one worker.
struct RoundRecord {
  std::int64_t fragment = 0;
  std::int64_t sent = 0;
  std::int64_t applied = 0;
  double payload_bytes = 0;
  double wire_bytes = 0;
  double members = kNothing;
  std::string codec;
  double delta_norm = kNothing;
  double wait_s = kNothing;
  double codec_error = kNothing;  // relative; mean over the counted workers, like the cosine
  double cosine = kNothing;       // of each worker's contribution with the mean
  bool closing = false;           // for steps after the last regular round
};

/// A site that left, joined, or rejoined with its earlier work.
struct MembershipRecord {
  std::int64_t step = 0;  // after which it holds
  std::string what;       // "site left"
  std::string site;
  std::string why;
  double sites = kNothing;  // present afterwards
  double tokens_kept = kNothing, tokens_lost = kNothing;
  double steps_alone = kNothing, tokens_alone = kNothing;  // of these, while it was cut off
};

using SpanKind = EventKind;
inline constexpr int kSpanKinds = 4;  // the first ones, which pages show
static_assert(static_cast<int>(SpanKind::kWait) == kSpanKinds - 1);
[[nodiscard]] std::string_view span_name(SpanKind kind);

struct Span {
  SpanKind kind = SpanKind::kCompute;
  int worker = 0;
  int peer = -1;
  double begin_s = 0;
  double end_s = 0;
  double bytes = 0;
  std::int64_t fragment = -1;
  std::int64_t step = 0;
};

/// Seconds of one worker by kind; sends and receives run concurrently with compute and wait.
struct WorkerTime {
  double seconds[kSpanKinds] = {0, 0, 0, 0};
  /// REQUIRES: one of the kinds that pages show.
  [[nodiscard]] double of(SpanKind kind) const {
    ISTHMUS_CHECK(static_cast<int>(kind) < kSpanKinds, static_cast<int>(kind));
    return seconds[static_cast<int>(kind)];
  }
};

struct LinkRecord {
  std::string a, b;
  double bits_per_s_up = kNothing;
  double bits_per_s_down = kNothing;
  double rtt_s = kNothing;
  double loss = kNothing;
  double streams = kNothing;
  std::string congestion;
  std::string trace;         // a file with these mean rates; empty: constant rates
  std::string trace_digest;  // equal for equal files; empty in folders of older versions
};

struct PredictionRow {
  std::string name;
  std::string formula;
  double seconds = kNothing;
};

struct PredictionRecord {
  std::vector<PredictionRow> terms;
  double predicted_s = kNothing;
  double measured_s = kNothing;
  double error = kNothing;   // predicted / measured - 1
  std::string links_absent;  // why the run did not use the predicted links; empty: it did
};

struct ConfigValue {
  std::string value;   // as written in TOML
  std::string origin;  // "run.toml:12:8", "default", "--set ..."; may be empty
};

struct Surrogate {
  double parameters = kNothing;
  double step_s = kNothing;
};

struct DataFile {
  std::string path;
  double bytes = kNothing;
  std::string sha256;
};

struct Manifest {
  std::map<std::string, std::string> words;  // every scalar of the file, as text, by key
  std::map<std::string, std::string> model;  // the same for "model"
  std::vector<std::string> argv;
  std::vector<DataFile> data;
  std::optional<Surrogate> surrogate;
  std::optional<bool> simulated;
};

/// summary.json; absent numbers are NaN, absent lists empty.
struct Summary {
  std::string status;
  double steps = kNothing;
  double tokens = kNothing;
  double final_train_loss = kNothing;
  double final_eval_loss = kNothing;
  double simulated_s = kNothing;
  double wall_s = kNothing;
  double compute_utilisation = kNothing;
  std::vector<double> payload_bytes;         // by worker
  std::vector<double> wire_bytes;            // by worker
  std::vector<double> compute_s;             // by worker, or one for all
  std::vector<std::vector<double>> traffic;  // bytes from i to j
  PredictionRecord prediction;
};

struct RunData {
  std::filesystem::path directory;
  std::string label;   // unique among the runs of one page
  std::string method;  // empty if unknown
  int workers = 0;     // 0 if unknown
  std::vector<TrainPoint> train;
  std::vector<EvalPoint> evals;
  std::vector<RoundRecord> rounds;
  std::vector<MembershipRecord> membership;
  std::vector<std::string> notes;  // "warn" lines the run itself wrote
  std::string end_status;          // of the "end" line; empty while the run is running
  std::vector<Span> spans;         // earliest kMaxSpans, by begin
  double spans_cut_s = kNothing;   // the run itself left out later spans
  std::int64_t span_count = 0;     // in the file
  std::vector<WorkerTime> times;   // by worker, over all spans
  double last_span_end_s = kNothing;
  std::vector<LinkRecord> links;
  std::map<std::string, ConfigValue> config;  // "outer.H" -> value
  Manifest manifest;
  Summary summary;
  std::vector<std::string> warnings;
};

/// Spans kept for the timeline; the sums over workers take all of them.
inline constexpr std::size_t kMaxSpans = 4000;

/// Reads all files under `directory`. THROWS: nothing because of the files' content.
[[nodiscard]] RunData read_run(const std::filesystem::path& directory);

// The parts, each adding to `run` (one file each; split so that tests and fuzzing reach them).
void read_metrics(const std::filesystem::path& file, RunData& run);
void read_events(const std::filesystem::path& file, RunData& run);
void read_manifest(const std::filesystem::path& file, RunData& run);
void read_summary(const std::filesystem::path& file, RunData& run);
void read_links(const std::filesystem::path& file, RunData& run);
void read_resolved_config(const std::filesystem::path& file, RunData& run);

}  // namespace isthmus::report
