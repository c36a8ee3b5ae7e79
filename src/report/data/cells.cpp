// SPDX-License-Identifier: Apache-2.0
#include "report/data/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/json_input.h"
#include "report/data/json_fields.h"
#include "report/data/text.h"

namespace isthmus::report {
namespace {

constexpr int kVersion = 1;

const char* stage_name(CellStage stage) { return stage == CellStage::kTune ? "tune" : "seed"; }

std::string eval_text(const CellEval& eval) {
  return fmt::format("[{},{},{},{},{}]", eval.step, exact(eval.loss), exact(eval.clock_s),
                     exact(eval.payload_bytes), exact(eval.wire_bytes));
}

/// [step, loss, clock_s, payload, wire]
std::optional<CellEval> read_eval(const Json& value) {
  constexpr std::size_t kNumbers = 5;
  if (!value.is_array() || value.size() != kNumbers || !value[0].is_number_integer()) {
    return std::nullopt;
  }
  CellEval eval{.step = value[0].get<std::int64_t>(),
                .loss = number_of(value[1]),
                .clock_s = number_of(value[2]),
                .payload_bytes = number_of(value[3]),
                .wire_bytes = number_of(value[4])};
  const bool numbers = std::isfinite(eval.loss) && std::isfinite(eval.payload_bytes) &&
                       std::isfinite(eval.wire_bytes);
  return numbers ? std::optional(eval) : std::nullopt;
}

bool read_evals(const Json& line, std::vector<CellEval>& evals) {
  const auto found = line.find("evals");
  if (found == line.end() || !found->is_array()) {
    return false;
  }
  for (const Json& each : *found) {
    const auto eval = read_eval(each);
    if (!eval || (!evals.empty() && eval->step <= evals.back().step)) {
      return false;
    }
    evals.push_back(*eval);
  }
  return true;
}

}  // namespace

double CellResult::final_loss() const {
  return status == CellStatus::kOk && !evals.empty() ? evals.back().loss
                                                     : std::numeric_limits<double>::infinity();
}

void fail_without_loss(CellResult& cell) {
  const auto bad = std::find_if(cell.evals.begin(), cell.evals.end(),
                                [](const CellEval& eval) { return !std::isfinite(eval.loss); });
  if (cell.status == CellStatus::kFailed || (bad == cell.evals.end() && !cell.evals.empty())) {
    return;
  }
  cell.status = CellStatus::kFailed;
  cell.cause = cell.evals.empty()
                   ? "the run has no evaluation"
                   : fmt::format(
                         "step {}: the loss on the validation part is {}: the run has "
                         "diverged; lower its rates",
                         bad->step, std::abs(bad->loss));  // the sign of a nan says nothing
  cell.evals.clear();
}

std::string cell_line(const CellResult& cell) {
  std::string text = fmt::format("{{\"v\":{},\"k\":\"cell\",\"key\":{},\"stage\":\"{}\"", kVersion,
                                 json_string(cell.key), stage_name(cell.stage));
  const auto add = [&text](std::string_view name, const std::string& json) {
    text += fmt::format(",\"{}\":{}", name, json);
  };
  add("configuration", json_string(cell.configuration));
  add("variant", json_string(cell.variant));
  add("method", json_string(cell.method));
  add("seed", fmt::format("{}", cell.seed));
  std::string tuned;
  for (const auto& [key, value] : cell.tuned) {
    tuned += fmt::format("{}{}:{}", tuned.empty() ? "" : ",", json_string(key), json_string(value));
  }
  add("tuned", "{" + tuned + "}");
  add("status", cell.status == CellStatus::kOk ? "\"ok\"" : "\"failed\"");
  add("cause", cell.cause.empty() ? "null" : json_string(cell.cause));
  const double loss = cell.final_loss();
  add("final_eval_loss", exact(loss));
  add("steps", fmt::format("{}", cell.steps));
  add("tokens", fmt::format("{}", cell.tokens));
  add("parameters", fmt::format("{}", cell.parameters));
  add("data_tokens", fmt::format("{}", cell.data_tokens));
  add("data_entropy", exact(cell.data_entropy));
  add("simulated", cell.simulated ? "true" : "false");
  add("compute_utilisation", exact(cell.utilisation));
  add("wall_s", exact(cell.wall_s));
  add("directory", json_string(cell.directory));
  add("version", json_string(cell.version));
  add("finished", json_string(cell.finished));
  add("eval_columns", R"(["step","loss","simulated_s","bytes_payload","bytes_wire"])");
  std::string evals;
  for (const CellEval& eval : cell.evals) {
    evals += (evals.empty() ? "" : ",") + eval_text(eval);
  }
  add("evals", "[" + evals + "]");
  return text + "}";
}

std::optional<CellResult> read_cell(std::string_view line) {
  const Json json = read_json(line);
  if (!json.is_object() || text_at(json, "k") != "cell" || integer_at(json, "v", 0) != kVersion) {
    return std::nullopt;
  }
  CellResult cell{.key = text_at(json, "key"),
                  .configuration = text_at(json, "configuration"),
                  .variant = text_at(json, "variant"),
                  .method = text_at(json, "method"),
                  .cause = text_at(json, "cause"),
                  .steps = integer_at(json, "steps", 0),
                  .tokens = integer_at(json, "tokens", 0),
                  .parameters = integer_at(json, "parameters", 0),
                  .data_tokens = integer_at(json, "data_tokens", 0),
                  .data_entropy = number_at(json, "data_entropy", 0),
                  .utilisation = number_at(json, "compute_utilisation", 0),
                  .wall_s = number_at(json, "wall_s", 0),
                  .directory = text_at(json, "directory"),
                  .version = text_at(json, "version"),
                  .finished = text_at(json, "finished")};
  const std::string stage = text_at(json, "stage");
  const std::string status = text_at(json, "status");
  cell.stage = stage == "tune" ? CellStage::kTune : CellStage::kSeed;
  cell.status = status == "ok" ? CellStatus::kOk : CellStatus::kFailed;
  const auto seed = json.find("seed");
  const auto tuned = json.find("tuned");
  const bool known = (stage == "tune" || stage == "seed") &&
                     (status == "ok" || status == "failed") && !cell.key.empty() &&
                     !cell.variant.empty() && seed != json.end() && seed->is_number_integer() &&
                     tuned != json.end() && tuned->is_object();
  if (!known || !read_evals(json, cell.evals)) {
    return std::nullopt;
  }
  cell.seed = seed->get<std::int64_t>();
  cell.simulated = json.value("simulated", Json(false)) == Json(true);
  for (const auto& [key, value] : tuned->items()) {
    cell.tuned.emplace_back(key, scalar_text(value));
  }
  const bool timed = std::all_of(cell.evals.begin(), cell.evals.end(),
                                 [](const CellEval& eval) { return std::isfinite(eval.clock_s); });
  const bool whole = (cell.status == CellStatus::kFailed || !cell.evals.empty()) &&
                     (timed || !cell.simulated);  // a clock that is none would sort anywhere
  return whole ? std::optional(std::move(cell)) : std::nullopt;
}

CellFile read_cells(std::string_view text) {
  CellFile file;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    // Without its newline a line is torn, even if its text happens to parse.
    auto cell = end == std::string_view::npos ? std::nullopt : read_cell(text.substr(0, end));
    if (cell) {
      file.cells.push_back(std::move(*cell));
    } else {
      ++file.damaged;
    }
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return file;
}

}  // namespace isthmus::report
