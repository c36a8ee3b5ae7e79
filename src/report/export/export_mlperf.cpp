// SPDX-License-Identifier: Apache-2.0
// MLPerf training logs: one ":::MLLOG {...}" line an event. The keys are those of mlperf-logging;
// evaluations carry the loss in nats as eval_accuracy, as MLPerf's language models do. Times of a
// simulated run are simulated milliseconds.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/base/json_input.h"
#include "core/base/utf8_text.h"
#include "isthmus/errors.h"
#include "report/data/json_fields.h"
#include "report/data/text.h"
#include "report/export/export_files.h"

namespace isthmus {
namespace report {
namespace {

class MlperfLog {
 public:
  explicit MlperfLog(const RunData& run)
      : run_(run), context_(std::max(number("train.context").value_or(1), 1.0)) {}
  std::string write();

 private:
  void line(const char* type, const char* key, const std::string& value,
            const std::string& metadata = "") {
    text_ += fmt::format(
        R"(:::MLLOG {{"namespace": "", "time_ms": {}, "event_type": "{}", "key": "{}", "value": {}, "metadata": {{{}}}}})"
        "\n",
        time_ms_, type, key, value, metadata);
  }
  void point(const char* key, const std::string& value, const std::string& metadata = "") {
    line("POINT_IN_TIME", key, value, metadata);
  }
  void start(const char* key, const std::string& metadata = "") {
    line("INTERVAL_START", key, "null", metadata);
  }
  void stop(const char* key, const std::string& metadata = "") {
    line("INTERVAL_END", key, "null", metadata);
  }
  /// The value of a key of the configuration as JSON, when it is there.
  [[nodiscard]] std::optional<Json> value(const std::string& key) const;
  /// Its leading number: 192 of "192 tok"; a percentage is of the run's steps.
  [[nodiscard]] std::optional<double> number(const std::string& key) const;
  void number_point(const char* key, const std::string& config_key) {
    if (const auto given = number(config_key)) point(key, exact(*given));
  }
  void submission();
  void hyperparameters();
  void evaluations();
  [[nodiscard]] std::string samples(double tokens) const {
    return fmt::format("{:.0f}", tokens / context_);
  }

  const RunData& run_;
  double context_;  // tokens a sample
  std::int64_t time_ms_ = 0;
  std::string text_;
};

std::optional<Json> MlperfLog::value(const std::string& key) const {
  const auto found = run_.config.find(key);
  if (found == run_.config.end()) {
    return std::nullopt;
  }
  Json json = read_json(found->second.value);
  return json.is_discarded() ? std::nullopt : std::optional(std::move(json));
}

std::optional<double> MlperfLog::number(const std::string& key) const {
  const std::optional<Json> given = value(key);
  if (given && given->is_number()) {
    return given->get<double>();
  }
  if (!given || !given->is_string()) {
    return std::nullopt;
  }
  const auto& text = given->get_ref<const std::string&>();
  double leading = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), leading);
  if (result.ec != std::errc()) {
    return std::nullopt;
  }
  if (text.ends_with('%')) {
    const auto steps = key == "train.steps" ? std::nullopt : number("train.steps");
    return steps ? std::optional(std::round(leading / 100 * *steps)) : std::nullopt;
  }
  return leading;
}

void MlperfLog::submission() {
  const auto word = [&](const char* key, const std::string& absent) {
    const auto found = run_.manifest.words.find(key);
    return json_quote(found == run_.manifest.words.end() ? absent : found->second);
  };
  const bool simulated = run_.manifest.simulated.value_or(false);
  point("submission_benchmark", word("name", "run"));
  point("submission_org", "\"isthmus\"");
  point("submission_division", "\"open\"");
  point("submission_status", "\"research\"");
  point("submission_platform", simulated ? "\"simulated\"" : word("cpu", "unknown"));
  point("cache_clear", "false");
  start("init_start");
}

void MlperfLog::hyperparameters() {
  number_point("seed", "run.seed");
  if (const auto batch = number("train.global_batch")) {
    point("global_batch_size", samples(*batch));
  }
  point("gradient_accumulation_steps", exact(number("parallel.micro_batches").value_or(1)));
  number_point("max_sequence_length", "train.context");
  const auto optimizer = value("inner.optimizer");
  if (optimizer && optimizer->is_string()) {
    point("opt_name", optimizer->dump());
  }
  number_point("opt_base_learning_rate", "inner.lr");
  number_point("opt_learning_rate_warmup_steps", "inner.warmup");
  if (const auto schedule = value("inner.schedule"); schedule && schedule->is_string()) {
    point("opt_learning_rate_decay_schedule", schedule->dump());
  }
  if (optimizer && *optimizer == "adamw") {
    const auto betas = value("inner.betas");
    if (betas && betas->is_array() && betas->size() == 2) {
      point("opt_adamw_beta_1", (*betas)[0].dump());
      point("opt_adamw_beta_2", (*betas)[1].dump());
    }
    number_point("opt_adamw_epsilon", "inner.eps");
    number_point("opt_adamw_weight_decay", "inner.weight_decay");
  }
  number_point("opt_gradient_clip_norm", "inner.clip");
  point("train_samples", samples(run_.train.back().tokens));
  point("eval_samples", samples(run_.evals.empty() ? 0 : run_.evals.back().tokens));
}

void MlperfLog::evaluations() {
  const bool simulated = run_.manifest.simulated.value_or(false);
  auto train = run_.train.begin();
  double tokens = 0;
  for (const EvalPoint& eval : run_.evals) {
    start("block_start", fmt::format(R"("samples_count": {})", samples(tokens)));
    for (; train != run_.train.end() && train->step <= eval.step; ++train) {
      const double seconds = simulated ? train->simulated_s : train->unix_s;
      if (std::isfinite(seconds)) time_ms_ = std::llround(seconds * 1000);
      if (std::isfinite(train->tokens)) tokens = train->tokens;
    }
    const std::string place =
        fmt::format(R"("samples_count": {}, "step": {})", samples(tokens), eval.step);
    stop("block_stop", place);
    start("eval_start", place);
    // JSON has no infinities: a loss that is none is null.
    point("eval_accuracy", exact(eval.loss), place);
    stop("eval_stop", place);
  }
}

std::string MlperfLog::write() {
  const TrainPoint& first = run_.train.front();
  const bool simulated = run_.manifest.simulated.value_or(false);
  // Nothing says when a real run began its first step: the time of its end is the nearest.
  time_ms_ = simulated || !std::isfinite(first.unix_s) ? 0 : std::llround(first.unix_s * 1000);
  submission();
  hyperparameters();
  stop("init_stop");
  start("run_start");
  evaluations();
  if (!run_.end_status.empty()) {
    stop("run_stop", fmt::format(R"("status": "{}", "samples_count": {})",
                                 run_.end_status == "ok" ? "success" : "aborted",
                                 samples(run_.train.back().tokens)));
  }
  return text_;
}

}  // namespace
}  // namespace report

ExportResult export_mlperf(const std::filesystem::path& from, const std::filesystem::path& to) {
  ExportResult result;
  for (const report::ExportedRun& run : report::runs_to_export(from)) {
    report::each_metric(run, result, report::is_metric_line);
    const report::RunData data = report::read_run(run.directory);
    if (data.train.empty()) {
      throw SystemError(fmt::format("{}: metrics.jsonl holds no training step yet: nothing to log",
                                    run.directory.string()));
    }
    if (data.end_status.empty()) {
      result.warnings.push_back(
          fmt::format("{}: the run has no end yet: no run_stop", run.directory.string()));
    }
    report::write_export(report::file_of(run, to, ".log"), report::MlperfLog(data).write(), result);
    ++result.runs;
  }
  return result;
}

}  // namespace isthmus
