// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_summary.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "app/common/text_table.h"
#include "app/observe/round_json.h"
#include "core/base/units.h"
#include "session/outcome_summary.h"

namespace isthmus::app {
namespace {

/// With `whole`, each term and each pair of rounds too.
std::string prediction_json(const TrainingOutcome& outcome, bool whole) {
  const Prediction& prediction = *outcome.prediction;
  const double measured_s = clock_predicted(outcome);
  const auto term_json = [](const PredictionTerm& term) {
    return JsonLine()
        .add("name", term.name)
        .add("seconds", term.seconds)
        .add("formula", term.formula);
  };
  JsonLine line;
  if (whole) line.add_list("terms", prediction.terms, term_json);
  line.add("predicted_s", prediction.predicted_s)
      .add("measured_s", measured_s)
      .add("error", prediction.predicted_s / measured_s - 1);
  if (!outcome.links_absent.empty()) line.add("links_absent", outcome.links_absent);
  if (outcome.rounds.all.rounds > 0) {
    line.add_raw("rounds", rounds_json(outcome.rounds, outcome.rounds_at, whole));
  }
  return line.str();
}

JsonLine summary_line(const TrainingOutcome& outcome) {
  JsonLine line =
      outcome_summary(outcome, outcome.parameters,
                      outcome.simulated ? std::optional(outcome.totals.clock_s) : std::nullopt);
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
  JsonLine line = summary_line(outcome);
  add_world(line, outcome, result);
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
    constexpr std::size_t kTextColumn = 16;  // of a row
    const auto lines = [](const std::string& words) {
      const std::string indented = wrapped(words, kTextColumn, 100);
      return indented.substr(kTextColumn, indented.size() - kTextColumn - 1);
    };
    row("faults", lines(describe(*outcome.faults)));
    for (const std::string& note : outcome.faults->notes) row("", lines(note));
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
  JsonLine line = summary_line(outcome);
  line.add("directory", outcome.directory.string()).add("complete_before", outcome.complete_before);
  if (outcome.prediction) line.add_raw("prediction", prediction_json(outcome, false));
  return line.str();
}

}  // namespace isthmus::app
