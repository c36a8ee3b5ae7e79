// SPDX-License-Identifier: Apache-2.0
// manifest.json, summary.json, links.json and config.resolved.toml.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "core/base/trimmed.h"
#include "report/data/json_fields.h"
#include "report/data/run_data.h"

namespace isthmus::report {
namespace {

constexpr std::string_view kBlanks = " \t\r";

constexpr std::size_t kMaxWorkers = 4096;

std::vector<double> numbers_of(const Json& value) {
  std::vector<double> numbers;
  if (value.is_array()) {
    for (std::size_t i = 0; i < std::min(value.size(), kMaxWorkers); ++i) {
      numbers.push_back(number_of(value[i]));
    }
  } else if (value.is_number()) {
    numbers.push_back(number_of(value));
  }
  return numbers;
}

std::vector<double> numbers_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::vector<double>{} : numbers_of(*found);
}

PredictionRecord prediction_of(const Json& value) {
  PredictionRecord record{.predicted_s = number_at(value, "predicted_s"),
                          .measured_s = number_at(value, "measured_s"),
                          .error = number_at(value, "error"),
                          .links_absent = text_at(value, "links_absent")};
  for (const Json& term : list_at(value, "terms")) {
    if (term.is_object()) {
      record.terms.push_back({.name = text_at(term, "name"),
                              .formula = text_at(term, "formula"),
                              .seconds = number_at(term, "seconds")});
    }
  }
  return record;
}

/// The scalars of an object as texts, without null.
std::map<std::string, std::string> scalars_of(const Json& object) {
  std::map<std::string, std::string> scalars;
  for (const auto& [key, value] : object.items()) {
    if (value.is_primitive() && !value.is_null()) {
      scalars[key] = scalar_text(value);
    }
  }
  return scalars;
}

DataFile data_file(const Json& value) {
  return {.path = text_at(value, "path"),
          .bytes = number_at(value, "bytes"),
          .sha256 = text_at(value, "sha256")};
}

/// Where the comment of a TOML line starts, strings skipped; npos when it has none.
std::size_t comment_at(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == '\\' && quote == '"') {
        ++i;
      } else if (c == quote) {
        quote = 0;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      return i;
    }
  }
  return std::string_view::npos;
}

/// "[outer]" -> "outer."; "[[link]]" -> "link[0].", "link[1]." in order of appearance.
std::string section_prefix(std::string_view header, std::map<std::string, int>& tables) {
  const bool array = header.substr(0, 2) == "[[";
  const std::size_t skip = array ? 2 : 1;
  if (header.size() < 2 * skip) {
    return {};
  }
  const std::string name{trimmed(header.substr(skip, header.size() - 2 * skip), kBlanks)};
  return array ? fmt::format("{}[{}].", name, tables[name]++) : name + ".";
}

}  // namespace

void read_manifest(const std::filesystem::path& file, RunData& run) {
  const Json json = parse_file(file, run);
  if (json.is_discarded()) {
    return;
  }
  Manifest& manifest = run.manifest;
  manifest.words = scalars_of(json);
  for (const Json& word : list_at(json, "argv")) {
    manifest.argv.push_back(scalar_text(word));
  }
  for (const Json& entry : list_at(json, "data")) {
    if (entry.is_object()) {
      manifest.data.push_back(data_file(entry));
    }
  }
  manifest.model = scalars_of(object_at(json, "model"));
  if (const Json& big = object_at(json, "surrogate"); !big.empty()) {
    manifest.surrogate =
        Surrogate{.parameters = number_at(big, "params"), .step_s = number_at(big, "step_time_s")};
  }
  if (const auto flag = json.find("simulated"); flag != json.end() && flag->is_boolean()) {
    manifest.simulated = flag->get<bool>();
  }
  if (run.method.empty()) {
    run.method = text_at(json, "method");
  }
  if (run.workers == 0) {
    run.workers =
        static_cast<int>(std::clamp<std::int64_t>(integer_at(json, "workers", 0), 0, kMaxWorkers));
  }
}

void read_summary(const std::filesystem::path& file, RunData& run) {
  std::error_code error;
  if (run.end_status.empty() && !std::filesystem::exists(file, error)) {
    return;  // written at the end only
  }
  const Json json = parse_file(file, run);
  if (json.is_discarded()) {
    return;
  }
  Summary& summary = run.summary;
  summary.status = text_at(json, "status");
  summary.steps = number_at(json, "steps");
  summary.tokens = number_at(json, "tokens");
  summary.final_train_loss = number_at(json, "final_train_loss");
  summary.final_eval_loss = number_at(json, "final_eval_loss");
  summary.simulated_s = number_at(json, "simulated_s");
  summary.wall_s = number_at(json, "wall_s");
  summary.compute_utilisation = number_at(json, "compute_utilisation");
  summary.payload_bytes = numbers_at(json, "bytes_payload");
  summary.wire_bytes = numbers_at(json, "bytes_wire");
  summary.compute_s = numbers_at(json, "compute_s");
  for (const Json& row : list_at(json, "traffic")) {
    summary.traffic.push_back(numbers_of(row));
  }
  if (const Json& value = object_at(json, "prediction"); !value.empty()) {
    summary.prediction = prediction_of(value);
  }
}

void read_links(const std::filesystem::path& file, RunData& run) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    return;  // a run in process has no links
  }
  const Json json = parse_file(file, run);
  if (json.is_discarded()) {
    return;
  }
  const auto links = json.find("links");
  if (links == json.end() || !links->is_array()) {
    run.warnings.push_back("links.json has no list \"links\": not used");
    return;
  }
  for (const Json& link : *links) {
    if (link.is_object()) {
      run.links.push_back({.a = text_at(link, "a"),
                           .b = text_at(link, "b"),
                           .bits_per_s_up = number_at(link, "bits_per_s_up"),
                           .bits_per_s_down = number_at(link, "bits_per_s_down"),
                           .rtt_s = number_at(link, "rtt_s"),
                           .loss = number_at(link, "loss"),
                           .streams = number_at(link, "streams"),
                           .congestion = text_at(link, "congestion"),
                           .trace = text_at(link, "trace"),
                           .trace_digest = text_at(link, "trace_digest")});
    }
  }
}

void read_resolved_config(const std::filesystem::path& file, RunData& run) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    run.warnings.push_back(file.filename().string() + " is missing: no configuration to show");
    return;
  }
  // One "key = value  # origin" a line is all this file holds; a TOML parser would drop the
  // origins.
  std::map<std::string, int> tables;
  std::string prefix;
  std::string text;
  while (std::getline(in, text)) {
    const std::size_t comment = comment_at(text);
    const std::string_view line{text};
    const std::string_view body = trimmed(line.substr(0, comment), kBlanks);
    if (body.empty()) {
      continue;
    }
    if (body.front() == '[') {
      prefix = section_prefix(body, tables);
      continue;
    }
    const std::size_t equals = body.find('=');
    if (equals == std::string_view::npos) {
      continue;
    }
    const std::string key = prefix + std::string{trimmed(body.substr(0, equals), kBlanks)};
    const std::string_view origin = comment == std::string_view::npos
                                        ? std::string_view{}
                                        : trimmed(line.substr(comment + 1), kBlanks);
    run.config[key] = {.value = std::string{trimmed(body.substr(equals + 1), kBlanks)},
                       .origin = std::string{origin}};
  }
}

RunData read_run(const std::filesystem::path& directory) {
  RunData run;
  run.directory = directory;
  read_metrics(directory / "metrics.jsonl", run);
  read_events(directory / "events.jsonl", run);
  read_manifest(directory / "manifest.json", run);
  read_summary(directory / "summary.json", run);
  read_links(directory / "links.json", run);
  read_resolved_config(directory / "config.resolved.toml", run);
  if (run.end_status.empty() && !run.train.empty()) {
    run.warnings.push_back(fmt::format(
        "metrics.jsonl has no \"end\" line: the run is still going or was killed; this is what "
        "there is up to step {}",
        run.train.back().step));
  }
  return run;
}

}  // namespace isthmus::report
