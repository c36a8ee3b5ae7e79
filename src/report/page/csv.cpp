// SPDX-License-Identifier: Apache-2.0
#include "report/page/csv.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "report/data/text.h"

namespace isthmus::report {
namespace {

std::string number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; }

void row(std::string& csv, std::initializer_list<std::string> fields) {
  const char* separator = "";
  for (const std::string& field : fields) {
    csv += separator + field;
    separator = ",";
  }
  csv += "\r\n";
}

struct NamedFigure {
  const char* name;
  double RunFigures::*field;
};
constexpr std::array<NamedFigure, 9> kFigures = {{
    {"steps", &RunFigures::steps},
    {"tokens", &RunFigures::tokens},
    {"final_train_loss", &RunFigures::train_loss},
    {"final_eval_loss", &RunFigures::eval_loss},
    {"bytes_payload_per_worker", &RunFigures::payload_bytes},
    {"bytes_wire_per_worker", &RunFigures::wire_bytes},
    {"simulated_s", &RunFigures::simulated_s},
    {"wall_s", &RunFigures::wall_s},
    {"compute_utilisation", &RunFigures::utilisation},
}};

}  // namespace

std::string runs_csv(const std::vector<RunView>& runs) {
  std::string csv = "run,method,workers,status";
  for (const NamedFigure& figure : kFigures) {
    csv += std::string{","} + figure.name;
  }
  csv += ",surrogate\r\n";
  for (const RunView& run : runs) {
    csv += fmt::format("{},{},{},{}", csv_field(run.data.label), csv_field(run.data.method),
                       run.data.workers, csv_field(run.figures.status));
    for (const NamedFigure& figure : kFigures) {
      csv += ',';
      csv += number(run.figures.*figure.field);
    }
    csv += concat(",", csv_field(run.clock.surrogate ? run.clock.basis : ""), "\r\n");
  }
  return csv;
}

std::string train_csv(const std::vector<RunView>& runs) {
  std::string csv = "run,step,loss,lr,grad_norm,tok_s,tokens,unix_s,simulated_s\r\n";
  for (const RunView& run : runs) {
    const std::string label = csv_field(run.data.label);
    for (const TrainPoint& p : run.data.train) {
      row(csv, {label, fmt::format("{}", p.step), number(p.loss), number(p.learning_rate),
                number(p.gradient_norm), number(p.tokens_per_s), number(p.tokens), number(p.unix_s),
                number(p.simulated_s)});
    }
  }
  return csv;
}

std::string eval_csv(const std::vector<RunView>& runs) {
  std::string csv = "run,step,loss,ppl,n_tokens\r\n";
  for (const RunView& run : runs) {
    for (const EvalPoint& p : run.data.evals) {
      row(csv, {csv_field(run.data.label), fmt::format("{}", p.step), number(p.loss),
                number(p.perplexity), number(p.tokens)});
    }
  }
  return csv;
}

std::string rounds_csv(const std::vector<RunView>& runs) {
  std::string csv =
      "run,frag,step_send,step_apply,bytes_payload,bytes_wire,members,codec,delta_norm,wait_s,err,"
      "cos,closing\r\n";
  for (const RunView& run : runs) {
    for (const RoundRecord& r : run.data.rounds) {
      row(csv, {csv_field(run.data.label), fmt::format("{}", r.fragment), fmt::format("{}", r.sent),
                fmt::format("{}", r.applied), number(r.payload_bytes), number(r.wire_bytes),
                number(r.members), csv_field(r.codec), number(r.delta_norm), number(r.wait_s),
                number(r.codec_error), number(r.cosine), r.closing ? "1" : "0"});
    }
  }
  return csv;
}

std::string prediction_csv(const std::vector<RunView>& runs) {
  std::string csv = "run,term,formula,seconds\r\n";
  for (const RunView& run : runs) {
    const PredictionRecord& prediction = run.data.summary.prediction;
    const std::string label = csv_field(run.data.label);
    for (const PredictionRow& term : prediction.terms) {
      row(csv, {label, csv_field(term.name), csv_field(term.formula), number(term.seconds)});
    }
    if (!prediction.terms.empty()) {
      row(csv, {label, "predicted", "", number(prediction.predicted_s)});
      row(csv, {label, "measured", "", number(prediction.measured_s)});
    }
  }
  return csv;
}

std::string runs_json(const std::vector<RunView>& runs) {
  std::string json = "{\"runs\":[";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunView& run = runs[i];
    fmt::format_to(std::back_inserter(json), R"({}{{"run":{},"method":{},"workers":{},"status":{})",
                   i == 0 ? "" : ",", json_string(run.data.label), json_string(run.data.method),
                   run.data.workers, json_string(run.figures.status));
    for (const NamedFigure& figure : kFigures) {
      fmt::format_to(std::back_inserter(json), ",\"{}\":{}", figure.name,
                     exact(run.figures.*figure.field));
    }
    fmt::format_to(std::back_inserter(json), ",\"surrogate\":{}}}",
                   run.clock.surrogate ? json_string(run.clock.basis) : "null");
  }
  return json + "]}\n";
}

}  // namespace isthmus::report
