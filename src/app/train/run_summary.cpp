// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_summary.h"

#include <fmt/format.h>

#include <chrono>
#include <numeric>

#include "app/observe/round_json.h"
#include "core/base/units.h"

namespace isthmus::app {
namespace {

/// With `whole`, each term and each pair of rounds too.
std::string prediction_json(const TrainingOutcome& outcome, bool whole) {
  const Prediction& prediction = *outcome.prediction;
  const double measured_s = clock_predicted(outcome);
  std::vector<std::string> terms;
  for (const PredictionTerm& term : prediction.terms) {
    terms.push_back(JsonLine()
                        .add("name", term.name)
                        .add("seconds", term.seconds)
                        .add("formula", term.formula)
                        .str());
  }
  JsonLine line;
  if (whole) line.add_raw("terms", json_array(terms));
  line.add("predicted_s", prediction.predicted_s)
      .add("measured_s", measured_s)
      .add("error", prediction.predicted_s / measured_s - 1);
  if (!outcome.links_absent.empty()) line.add("links_absent", outcome.links_absent);
  if (outcome.rounds.all.rounds > 0) {
    line.add_raw("rounds", rounds_json(outcome.rounds, outcome.rounds_at, whole));
  }
  return line.str();
}

std::string links_json(const RunDirectory& directory, const Config& config) {
  std::vector<std::string> links;
  for (const LinkConfig& link : config.links) {
    JsonLine line;
    line.add("a", link.a)
        .add("b", link.b)
        .add("bits_per_s_up", link.bits_per_s_up)
        .add("bits_per_s_down", link.bits_per_s_down)
        .add("rtt_s", in_seconds(link.rtt))
        .add("loss", link.loss)
        .add("streams", link.streams)
        .add("congestion", link.congestion);
    if (!link.trace.empty()) {  // rates are then its means
      line.add("trace", link.trace.string())
          .add("trace_digest", directory.trace_digest(link.trace));
    }
    links.push_back(line.str());
  }
  return JsonLine().add_raw("links", json_array(links)).str();
}

double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// Share of the workers' time spent computing, on the run's clock.
double utilisation(const RunTotals& totals) {
  const double available = totals.clock_s * static_cast<double>(totals.compute_s.size());
  return available > 0 ? total(totals.compute_s) / available : 0;
}

/// null where no window was left over.
std::string closing_json(const ClosingTotals& closing) {
  if (closing.rounds == 0) return "null";
  return JsonLine()
      .add("rounds", closing.rounds)
      .add("bytes_payload", closing.payload_bytes)
      .add("bytes_wire", closing.wire_bytes)
      .add("wait_s", closing.wait_s)
      .str();
}

JsonLine summary_line(const TrainingOutcome& outcome, double simulated_s) {
  const RunTotals& totals = outcome.totals;
  JsonLine line;
  line.add("status", outcome.status)
      .add("steps", totals.steps)
      .add("tokens", totals.tokens)
      .add("parameters", outcome.parameters)
      .add("rounds", totals.rounds)
      .add_raw("closing_round", closing_json(totals.closing))
      .add("final_train_loss", totals.train_loss);
  if (totals.eval_loss) {
    line.add("final_eval_loss", *totals.eval_loss).add("final_eval_step", totals.eval_step);
  } else {
    line.add_null("final_eval_loss");
  }
  line.add("bytes_payload", std::span<const std::uint64_t>(totals.payload_bytes))
      .add("bytes_wire", std::span<const std::uint64_t>(totals.wire_bytes));
  if (simulated_s >= 0) {
    line.add("simulated_s", simulated_s);
  } else {
    line.add_null("simulated_s");
  }
  line.add("wall_s", totals.wall_s)
      .add("compute_s", std::span<const double>(totals.compute_s))
      .add("compute_utilisation", utilisation(totals));
  if (outcome.late) {
    line.add("late_rounds", outcome.late->rounds)
        .add("late_steps_skipped", outcome.late->steps_skipped);
  }
  if (outcome.faults) {
    line.add_raw("faults", fault_cost_json(*outcome.faults));
  }
  return line;
}

}  // namespace

double clock_predicted(const TrainingOutcome& outcome) {
  const bool known = outcome.faults && outcome.faults->exact;
  return known ? outcome.faults->without_s : outcome.totals.clock_s;
}

void write_summary(RunDirectory& directory, const Config& config, const TrainingOutcome& outcome,
                   const WorldResult& result) {
  JsonLine line = summary_line(outcome, outcome.simulated ? outcome.totals.clock_s : -1);
  std::vector<std::string> rows;
  // Traffic is counted by session: a resumed run leaves it out rather than give a part.
  const bool whole = !outcome.resumed;
  for (const std::vector<std::uint64_t>& row :
       whole ? result.traffic : std::vector<std::vector<std::uint64_t>>{}) {
    std::vector<std::string> cells;
    for (const std::uint64_t bytes : row) {
      cells.push_back(fmt::format("{}", bytes));
    }
    rows.push_back(json_array(cells));
  }
  line.add_raw("traffic", json_array(rows));
  if (result.trace_hash) {
    line.add("trace_hash", fmt::format("{:016x}", *result.trace_hash));
  }
  if (outcome.totals.measured_step > Duration{0}) {
    line.add("measured_step_s", in_seconds(outcome.totals.measured_step));
  }
  if (outcome.prediction) {
    line.add_raw("prediction", prediction_json(outcome, true));
  }
  directory.write_json("summary.json", line.str());
  directory.write_json("links.json", links_json(directory, config));
}

std::string render_outcome(const Config& config, const TrainingOutcome& outcome) {
  const RunTotals& totals = outcome.totals;
  if (outcome.complete_before) {
    return fmt::format(
        "{}: the run in '{}' is complete: all of its {} steps were taken before; nothing was "
        "trained, and nothing was written. To train on, change its length (--change "
        "train.steps=N), or begin a new run with model.init\n",
        config.run.name, outcome.directory.string(), totals.steps);
  }
  std::string text;
  const auto row = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<14}{}\n", name, value);
  };
  text += fmt::format("{}: {} after {} steps, {} tokens\n", config.run.name, outcome.status,
                      totals.steps, human_count(static_cast<double>(totals.tokens)));
  row("model", fmt::format("{} parameters", human_count(static_cast<double>(outcome.parameters))));
  row("method", fmt::format("{}, {} worker{}", config.method, config.workers(),
                            config.workers() == 1 ? "" : "s"));
  row("train loss", fmt::format("{:.4f}", totals.train_loss));
  if (totals.eval_loss) {
    row("eval loss", fmt::format("{:.4f} after step {}", *totals.eval_loss, totals.eval_step));
  }
  if (config.workers() > 1) {
    row("sent",
        fmt::format("{} by one worker in {} rounds",
                    human_bytes(static_cast<double>(totals.wire_bytes.front())), totals.rounds));
  }
  if (totals.closing.rounds > 0 && config.workers() > 1) {
    const ClosingTotals& closing = totals.closing;
    row("closing round",
        fmt::format("{} of that, for the steps after the last regular round; {} waited for",
                    human_bytes(static_cast<double>(closing.wire_bytes)),
                    human_time(closing.wait_s)));
  }
  if (outcome.simulated) {
    row("simulated",
        fmt::format("{}, {:.1f} % of it computing{}", human_time(totals.clock_s),
                    100 * utilisation(totals),
                    config.surrogate ? " (clock and bytes of the declared surrogate)" : ""));
  }
  if (outcome.faults) {
    row("faults", describe(*outcome.faults));
    for (const std::string& note : outcome.faults->notes) row("", note);
  }
  row("took", human_time(totals.wall_s));
  row("files", outcome.directory.string());
  return text;
}

std::string render_outcome_prediction(const TrainingOutcome& outcome) {
  if (!outcome.prediction) return "";
  const bool comparable = !outcome.faults || outcome.faults->exact;
  std::string text = outcome.faults ? "\nwithout the faults:" : "";
  text += "\n" + render_prediction(*outcome.prediction, comparable ? clock_predicted(outcome) : 0,
                                   outcome.links_absent);
  if (outcome.rounds.all.rounds > 0 && outcome.links_absent.empty()) {
    text += "\n" + render_rounds(outcome.rounds, outcome.rounds_at);
  }
  return text;
}

std::string outcome_json(const TrainingOutcome& outcome) {
  JsonLine line = summary_line(outcome, outcome.simulated ? outcome.totals.clock_s : -1);
  line.add("directory", outcome.directory.string()).add("complete_before", outcome.complete_before);
  if (outcome.prediction) line.add_raw("prediction", prediction_json(outcome, false));
  return line.str();
}

}  // namespace isthmus::app
