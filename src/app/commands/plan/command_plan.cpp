// SPDX-License-Identifier: Apache-2.0
// `plan utilisation`: how fast a link has to be, by method, before anything runs.
#include <fmt/format.h>

#include <chrono>

#include "app/commands/bench/link_commands.h"
#include "app/commands/plan/flag_quantity.h"
#include "app/commands/plan/link_plans.h"
#include "app/common/text_table.h"
#include "app/train/config_to_options.h"
#include "config/links_file.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "inner/model/model_layout.h"
#include "plan/utilisation_latency.h"
#include "plan/utilisation_schedule.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

constexpr double kGiga = 1e9;
constexpr int kMostLayers = 10'000;
constexpr double kMostParameters = 1e15;
constexpr double kMostPlanSeconds = 1e6;
constexpr double kMostRate = 1e18;

/// The question: a model, rows, perhaps a rate.
struct Question {
  UtilisationModel model;
  std::vector<std::string> labels;  // of the rows, as they were spelt
  std::vector<UtilisationRow> rows;
  std::optional<double> bits_per_s;
  double latency_s = 0;
  std::string link;  // the link of that rate, if it comes from a links file
};

struct Answer {
  std::array<std::optional<double>, kUtilisationTargets.size()> needed;
  std::optional<double> utilisation;  // at the rate that was asked about
};

/// Flags that repeat keys of a configuration.
void refuse_beside_config(const PlanUtilisationArguments& arguments) {
  const UtilisationChoice& common = arguments.common;
  const bool chosen = common.H || common.fragment_layers || common.pattern || common.overlap ||
                      common.bits || common.embedding_turn;
  if (!arguments.methods.empty() || arguments.layers || chosen) {
    throw UsageError(
        fmt::format("plan utilisation: {} says method, its settings and layers; change them there "
                    "or by --set outer.H=50, and give only --params, --step-time and --bandwidth "
                    "beside it",
                    arguments.config.string()));
  }
}

Question configured(const PlanUtilisationArguments& arguments, Session& session) {
  refuse_beside_config(arguments);
  const Config config = load_config(arguments.config, arguments.overrides, schema_context());
  const ModelLayout layout(model_shape(config.model, config.train.context));
  Question question;
  question.model = {.parameters = static_cast<double>(layout.elements()),
                    .layers = static_cast<int>(config.model.layers)};
  Duration step_time = config.sim.step_time;
  if (config.surrogate) {
    question.model.parameters = config.surrogate->params;
    step_time = config.surrogate->step_time;
  }
  question.model.step_s = in_seconds(step_time);
  if (step_time == Duration{0} && arguments.step_time.empty()) {
    throw UsageError(
        fmt::format("plan utilisation: {} declares no time of an inner step; give --step-time "
                    "100ms, or surrogate.step_time, or sim.step_time",
                    arguments.config.string()));
  }
  if (!config.faults.empty()) {
    session.err.write(
        fmt::format("note: {} has [[fault]], which the plan leaves out: `simulate` "
                    "plays them\n",
                    arguments.config.string()));
  }
  if (has_traces(config)) {
    session.err.write(
        fmt::format("note: {} has a [[link]] with a trace; the plan takes its mean rate: "
                    "`simulate` plays it\n",
                    arguments.config.string()));
  }
  if (config.outer.late == LateRound::kSlip) {
    session.err.write(
        fmt::format("note: {} has outer.late = \"slip\"; the plan waits for late results: "
                    "`simulate` lets them slip\n",
                    arguments.config.string()));
  }
  question.labels.push_back(config.method);
  question.rows.push_back(
      utilisation_row(config.method, config.outer, parameters_without_values(layout)));
  return question;
}

/// Says which flags no row has a use for: they hold for every method that has such a setting.
void note_unused(const PlanUtilisationArguments& arguments, const std::vector<std::string>& methods,
                 Session& session) {
  const UtilisationChoice& common = arguments.common;
  const std::pair<std::string_view, bool> given[] = {
      {"H", common.H.has_value()},
      {"fragment-layers", common.fragment_layers.has_value()},
      {"pattern", common.pattern.has_value()},
      {"overlap", common.overlap.has_value()},
      {"embedding-turn", common.embedding_turn.has_value()}};
  for (const auto& [setting, is_given] : given) {
    bool used = false;
    for (const std::string& method : methods) {
      used = used || method_uses(method, setting);
    }
    if (is_given && !used && !session.quiet) {
      session.err.write(
          fmt::format("note: {} has no use for --{}\n", join(methods, ", "), setting));
    }
  }
}

Question flagged(const PlanUtilisationArguments& arguments, Session& session) {
  if (!arguments.layers || arguments.params.empty() || arguments.step_time.empty()) {
    throw UsageError(
        "plan utilisation: give the model by --params 1B --layers 24 --step-time 100ms, or a "
        "CONFIG; see `isthmus plan utilisation --help`");
  }
  if (*arguments.layers < 1 || *arguments.layers > kMostLayers) {
    throw UsageError(
        fmt::format("--layers {}: must be in 1 .. {}", *arguments.layers, kMostLayers));
  }
  if (!arguments.overrides.empty()) {
    throw UsageError("plan utilisation: --set needs a CONFIG to override");
  }
  Question question;
  question.model.layers = *arguments.layers;
  question.labels = arguments.methods;
  if (question.labels.empty()) {
    const auto rows = default_utilisation_rows();
    question.labels.assign(rows.begin(), rows.end());
  }
  std::vector<std::string> methods;
  for (const std::string& label : question.labels) {
    try {
      const UtilisationChoice choice = parse_utilisation_choice(label);
      methods.push_back(choice.method);
      question.rows.push_back(
          utilisation_row(completed(choice, arguments.common), question.model.layers));
    } catch (const ConfigError& error) {
      throw UsageError(fmt::format("plan utilisation: {}: {}", label, error.what()));
    }
  }
  note_unused(arguments, methods, session);
  return question;
}

/// The slowest direction of all links of the file; a configuration's sites must be in it.
void take_links(const PlanUtilisationArguments& arguments, const std::filesystem::path& links,
                Question& question) {
  if (!arguments.bandwidth.empty()) {
    throw UsageError("plan utilisation: --bandwidth and --links both say the rate; give one");
  }
  std::vector<std::string> sites;
  if (!arguments.config.empty()) {
    const Config config = load_config(arguments.config, arguments.overrides, schema_context());
    for (const SiteConfig& site : config.sites) sites.push_back(site.name);
  }
  const LinksFile file = read_links_file(links, sites);
  for (const LinkConfig& link : file.links) {
    const std::pair<double, std::string> directions[] = {
        {link.bits_per_s_up, fmt::format("{} -> {}", link.a, link.b)},
        {link.bits_per_s_down, fmt::format("{} -> {}", link.b, link.a)}};
    for (const auto& [rate, words] : directions) {
      if (!question.bits_per_s || rate < *question.bits_per_s) {
        question.bits_per_s = rate;
        question.link =
            fmt::format("{}{}, the slowest link of {}", words,
                        link.trace.empty() ? "" : ", the mean of its trace", file.origin);
      }
    }
  }
}

Question question_of(const PlanUtilisationArguments& arguments, Session& session) {
  Question question =
      arguments.config.empty() ? flagged(arguments, session) : configured(arguments, session);
  if (!arguments.params.empty()) {
    question.model.parameters =
        flag_quantity("--params", arguments.params, Dimension::kParameters, kMostParameters);
  }
  if (!arguments.step_time.empty()) {
    question.model.step_s =
        flag_quantity("--step-time", arguments.step_time, Dimension::kTime, kMostPlanSeconds);
  }
  if (!arguments.bandwidth.empty()) {
    question.bits_per_s =
        flag_quantity("--bandwidth", arguments.bandwidth, Dimension::kRate, kMostRate);
  }
  return question;
}

Answer answer_of(const Question& question, const UtilisationRow& row) {
  Answer answer{.needed = bandwidth_needed(question.model, row.schedule, question.latency_s)};
  if (question.bits_per_s) {
    answer.utilisation =
        compute_utilisation(question.model, row.schedule, *question.bits_per_s, question.latency_s);
  }
  return answer;
}

void add_model(JsonLine& line, const Question& question) {
  line.add("params", question.model.parameters)
      .add("layers", question.model.layers)
      .add("step_s", question.model.step_s);
  if (question.latency_s > 0) line.add("latency_s", question.latency_s);
  if (question.bits_per_s) {
    line.add("bandwidth_gbit_s", *question.bits_per_s / kGiga);
  }
  if (!question.link.empty()) line.add("link", question.link);
}

void add_answer(JsonLine& line, const Answer& answer) {
  JsonLine needed;
  for (std::size_t i = 0; i < kUtilisationTargets.size(); ++i) {
    const std::string target = fmt::format("{}", kUtilisationTargets[i]);
    answer.needed[i] ? needed.add(target, *answer.needed[i] / kGiga) : needed.add_null(target);
  }
  line.add("gbit_s", needed);
  if (answer.utilisation) {
    line.add("utilisation", *answer.utilisation);
  }
}

JsonLine row_json(const UtilisationRow& row) {
  JsonLine line;
  line.add("method", row.method)
      .add("H", row.H)
      .add("fragments", row.fragments)
      .add("overlap", row.overlap)
      .add("bits", row.schedule.bits);
  return line;
}

/// One row: {"method", its settings, the model, "gbit_s"}. Several: the model, then "methods".
std::string json_of(const Question& question) {
  if (question.rows.size() == 1) {
    JsonLine line = row_json(question.rows.front());
    add_model(line, question);
    add_answer(line, answer_of(question, question.rows.front()));
    return line.str();
  }
  JsonLine line;
  add_model(line, question);
  line.add_list("methods", question.rows, [&](const UtilisationRow& row) {
    JsonLine each = row_json(row);
    add_answer(each, answer_of(question, row));
    return each;
  });
  return line.str();
}

std::string rate_cell(const std::optional<double>& bits_per_s) {
  const std::span<const double> grid = bandwidth_grid();
  if (!bits_per_s) {
    return fmt::format("< {:g}", grid.front() / kGiga);
  }
  return *bits_per_s == grid.back() ? fmt::format("{:g}+", grid.back() / kGiga)
                                    : fmt::format("{:#.4g}", *bits_per_s / kGiga);
}

std::string settings_of(const UtilisationRow& row) {
  std::string text = row.H == 1 ? "every step" : fmt::format("H {}", row.H);
  if (row.fragments > 1) {
    text += fmt::format(", {} fragments", row.fragments);
  }
  if (row.overlap > 0) {
    text += fmt::format(", overlap {}", row.overlap);
  }
  return text + fmt::format(", {:.4g} bits", row.schedule.bits);
}

void print_table(const Question& question, Session& session) {
  std::vector<std::string> headings = {"method"};
  for (const double target : kUtilisationTargets) {
    headings.push_back(fmt::format("{:.0f}%", 100 * target));
  }
  if (question.bits_per_s) {
    headings.push_back(fmt::format("at {}", human_rate(*question.bits_per_s)));
  }
  headings.emplace_back("settings");
  TextTable table(headings);
  for (std::size_t i = 0; i < question.rows.size(); ++i) {
    const Answer answer = answer_of(question, question.rows[i]);
    std::vector<std::string> cells = {question.labels[i]};
    for (const std::optional<double>& rate : answer.needed) {
      cells.push_back(rate_cell(rate));
    }
    if (answer.utilisation) {
      cells.push_back(fmt::format("{:.1f}%", 100 * *answer.utilisation));
    }
    cells.push_back(settings_of(question.rows[i]));
    table.add(cells);
  }
  session.out.write(fmt::format(
      "{} parameters, {} layers, {} of computing a step, two sites{}\n\n{}\n",
      parameters_text(question.model.parameters), question.model.layers,
      human_time(question.model.step_s),
      question.latency_s > 0 ? fmt::format(", {} of latency", human_time(question.latency_s)) : "",
      table.text(session.out)));
  if (!question.link.empty()) {
    session.out.write(fmt::format("{}: {}\n\n", human_rate(*question.bits_per_s), question.link));
  }
  session.out.write(
      wrapped("Columns with a percentage: Gbit/s between the sites, the largest of 50 rates from "
              "0.1 to 1000 at which less than that share of the time is spent computing (the rule "
              "of the published tables; the next rate, 1.21 times as fast, reaches it).",
              0, session.out.width()));
}

}  // namespace

int command_plan_utilisation(const PlanUtilisationArguments& arguments, Session& session) {
  return command_plan_utilisation(arguments, {}, session);
}

int command_plan_utilisation(const PlanUtilisationArguments& arguments,
                             const std::filesystem::path& links, Session& session) {
  return command_plan_utilisation(arguments, links, {}, session);
}

int command_plan_utilisation(const PlanUtilisationArguments& arguments,
                             const std::filesystem::path& links, const std::string& latency,
                             Session& session) {
  Question question = question_of(arguments, session);
  if (!links.empty()) take_links(arguments, links, question);
  if (!latency.empty()) {
    question.latency_s = flag_quantity("--latency", latency, Dimension::kTime, kMostPlanSeconds);
  }
  if (session.json) {
    session.out.write(json_of(question) + "\n");
  } else {
    print_table(question, session);
  }
  return 0;
}

}  // namespace isthmus::app
