// SPDX-License-Identifier: Apache-2.0
// `plan choose`: which method, H, codec and mesh for these links, why, and after a run how far off
// that was.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/commands/plan/flag_quantity.h"
#include "app/commands/plan/link_plans.h"
#include "app/commands/plan/link_question.h"
#include "app/commands/plan/plan_mesh_request.h"
#include "app/common/text_table.h"
#include "core/base/json_input.h"
#include "core/base/storage.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "plan/method_choice.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

constexpr double kMostChoiceParameters = 1e15;
constexpr double kMostChoiceSeconds = 1e6;
constexpr double kMostChoiceRate = 1e15;
constexpr int kMostChoiceLayers = 10'000;
constexpr int kMostChoiceSites = 64;
constexpr std::int64_t kMostChoiceSteps = 10'000'000;

/// The published ladder's ratio of width to layers: 10B parameters have 48 layers, 100B 108.
constexpr double kWidthOfLayers = 85;
constexpr double kLayerValues = 12;  // times the width squared: attention 4, feed-forward 8

int usual_layers(double parameters) {
  const double layers = std::cbrt(parameters / (kLayerValues * kWidthOfLayers * kWidthOfLayers));
  return std::clamp(static_cast<int>(std::lround(layers)), 1, kMostChoiceLayers);
}

/// A llama of about that many parameters, as `plan mesh --model` spells it.
std::string usual_model(double parameters, int layers) {
  constexpr double kHead = 64;
  const double width = std::sqrt(parameters / (kLayerValues * layers));
  const auto heads = std::max<std::int64_t>(1, std::llround(width / kHead));
  return fmt::format("llama:layers={},d_model={},heads={},vocab=32768", layers,
                     heads * static_cast<std::int64_t>(kHead), heads);
}

struct Asked {
  ChoiceQuestion question;
  LinkQuestion links;
  std::optional<plan::MeshCandidate> mesh;
  std::string model;  // of the mesh
};

/// The fastest mesh of a site; its step time is the question's.
void take_mesh(const PlanChooseArguments& a, Asked& asked) {
  PlanMeshArguments mesh = a.mesh;
  if (mesh.model.empty())
    mesh.model = usual_model(asked.question.parameters, asked.question.layers);
  const PlanMeshRequest question = plan_mesh_request(mesh);
  const plan::MeshRanking ranking =
      plan::rank_meshes(question.workload, question.machine, question.search);
  if (!ranking.fits()) {
    throw UsageError(fmt::format(
        "plan choose: no mesh of {} ranks holds {}{}; more --ranks or --memory, or `isthmus plan "
        "mesh` for why",
        a.mesh.ranks, mesh.model,
        ranking.enough_ranks > 0 ? fmt::format(": {} ranks would do", ranking.enough_ranks) : ""));
  }
  asked.model = mesh.model;
  asked.mesh = ranking.candidates.front();
  if (a.step_time.empty()) asked.question.step_s = asked.mesh->time.step;
}

Asked asked_of(const PlanChooseArguments& a) {
  Asked asked;
  if (a.links.empty() || a.params.empty()) {
    throw UsageError(
        "plan choose: give the links and the model: --links links.toml --params 1B --step-time 1s; "
        "see `isthmus plan choose --help`");
  }
  if (!(a.computing > 0 && a.computing < 1)) {
    throw UsageError(fmt::format(
        "plan choose: --computing {:g}: must be above 0 and below 1, the least share of its time "
        "that a site is to compute",
        a.computing));
  }
  if (a.steps && (*a.steps < 1 || *a.steps > kMostChoiceSteps)) {
    throw UsageError(
        fmt::format("plan choose: --steps {}: must be in 1 .. {}", *a.steps, kMostChoiceSteps));
  }
  ChoiceQuestion& question = asked.question;
  question.parameters =
      flag_quantity("--params", a.params, Dimension::kParameters, kMostChoiceParameters);
  question.layers = a.layers.value_or(usual_layers(question.parameters));
  if (question.layers < 1 || question.layers > kMostChoiceLayers) {
    throw UsageError(fmt::format("plan choose: --layers {}: must be in 1 .. {}", question.layers,
                                 kMostChoiceLayers));
  }
  if (!a.step_time.empty()) {
    question.step_s =
        flag_quantity("--step-time", a.step_time, Dimension::kTime, kMostChoiceSeconds);
  } else if (a.mesh.ranks == 0) {
    throw UsageError(
        "plan choose: how long does a site compute a step? --step-time 1s says so, or --ranks 8 "
        "--compute 400TFLOP/s --batch \"512Ki tok\" have it worked out");
  }
  question.link.model = link_model_of(a.link_model);
  if (!a.processor.empty()) {
    question.processor_bits_per_s =
        flag_quantity("--processor", a.processor, Dimension::kRate, kMostChoiceRate);
  }
  asked.links = links_of_file("plan choose", a.links, a.sites);
  question.members = static_cast<int>(asked.links.sites.size());
  if (question.members > kMostChoiceSites) {
    throw UsageError(
        fmt::format("plan choose: {} sites; at most {} are compared: name some with "
                    "--sites",
                    question.members, kMostChoiceSites));
  }
  question.links = asked.links.links;
  if (a.mesh.ranks != 0) take_mesh(a, asked);
  return asked;
}

/// Keys of a run that does as the candidate says.
std::vector<std::string> candidate_settings(const MethodCandidate& candidate, int layers) {
  const OuterOptions options = options_of(candidate, layers);
  std::vector<std::string> settings = {fmt::format("outer.method={}", candidate.method)};
  if (candidate.H > 1) settings.push_back(fmt::format("outer.H={}", candidate.H));
  if (candidate.streaming) {
    settings.push_back(fmt::format("outer.fragments={}", options.fragments));
    settings.push_back(fmt::format("outer.overlap={}", options.overlap));
  }
  settings.push_back(fmt::format("outer.codec={}", candidate.codec));
  return settings;
}

/// A finished run beside the prediction for its method.
struct AfterRun {
  std::string method;
  std::int64_t H = 1;
  std::string codec;
  std::int64_t steps = 0;
  bool simulated = false;
  double measured_step_s = 0, predicted_step_s = 0;
  double measured_compute_s = 0, predicted_compute_s = 0;  // of a step
  bool chosen = false;  // the run used the method that is chosen now
  std::vector<std::string> notes;
  [[nodiscard]] double error() const { return predicted_step_s / measured_step_s - 1; }
};

nlohmann::json run_summary_of(const std::filesystem::path& run) {
  const SystemStorage storage;
  const std::filesystem::path file = run / "summary.json";
  if (storage.kind(file) != FileKind::kFile) {
    throw UsageError(fmt::format(
        "plan choose: --after {}: has no summary.json, so it is no run's folder or its run has not "
        "ended",
        run.string()));
  }
  return read_json(read_text(storage, file));
}

AfterRun after_run(const PlanChooseArguments& a, const Asked& asked, const MethodChoice& choice) {
  const nlohmann::json summary = run_summary_of(a.after);
  const Config config = load_config(a.after / "config.resolved.toml", {}, schema_context());
  AfterRun after{.method = config.method, .H = config.outer.H, .codec = config.outer.codec};
  if (config.workers() != asked.question.members) {
    throw UsageError(
        fmt::format("plan choose: --after {}: its run had {} sites, and {} are asked about; name "
                    "its sites with --sites",
                    a.after.string(), config.workers(), asked.question.members));
  }
  const auto number = [&summary](const char* key) {
    const auto found = summary.find(key);
    return found != summary.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  after.steps = static_cast<std::int64_t>(number("steps"));
  after.simulated = number("simulated_s") > 0;
  const double seconds = after.simulated ? number("simulated_s") : number("wall_s");
  if (after.steps < 1 || !(seconds > 0)) {
    throw UsageError(fmt::format(
        "plan choose: --after {}: its summary.json has no step; name a run that has trained",
        a.after.string()));
  }
  const auto steps = static_cast<double>(after.steps);
  after.measured_step_s = seconds / steps;
  after.measured_compute_s = number("compute_utilisation") * after.measured_step_s;
  ChoiceQuestion ran = asked.question;
  if (config.model.layers > 0) ran.layers = static_cast<int>(config.model.layers);
  after.predicted_step_s = time_run(ran, config.method, config.outer, after.steps).step_s;
  after.predicted_compute_s = asked.question.step_s;
  const MethodCandidate& chosen = *choice.candidates[choice.chosen].candidate;
  const OuterOptions would = options_of(chosen, ran.layers);
  after.chosen = after.method == chosen.method && after.H == chosen.H &&
                 after.codec == chosen.codec && config.outer.fragments == would.fragments &&
                 config.outer.overlap == would.overlap;
  const double trained = config.surrogate ? config.surrogate->params : number("parameters");
  if (std::abs(trained / asked.question.parameters - 1) > 0.1) {
    after.notes.push_back(fmt::format("the run's model has {} parameters, {} are asked about",
                                      parameters_text(trained),
                                      parameters_text(asked.question.parameters)));
  }
  if (!config.faults.empty()) {
    after.notes.emplace_back("the run's file has [[fault]], which the prediction leaves out");
  }
  return after;
}

std::string after_json(const AfterRun& after) {
  return JsonLine()
      .add("method", after.method)
      .add("H", after.H)
      .add("codec", after.codec)
      .add("steps", after.steps)
      .add("simulated", after.simulated)
      .add("measured_step_s", after.measured_step_s)
      .add("predicted_step_s", after.predicted_step_s)
      .add("error", after.error())
      .add("measured_compute_s", after.measured_compute_s)
      .add("predicted_compute_s", after.predicted_compute_s)
      .add("ran_the_choice", after.chosen)
      .str();
}

std::string method_json(const TimedCandidate& each, int layers) {
  const OuterOptions options = options_of(*each.candidate, layers);
  const auto evidence_json = [](const ChoiceEvidence& piece) {
    return JsonLine().add("source", piece.source).add("claim", piece.claim);
  };
  return JsonLine()
      .add("method", std::string(each.candidate->method))
      .add("H", each.candidate->H)
      .add("codec", std::string(each.candidate->codec))
      .add("fragments", options.fragments)
      .add("overlap", options.overlap)
      .add("step_s", each.time.step_s)
      .add("computing", each.time.computing)
      .add("step_bytes", each.time.step_bytes)
      .add("enough", each.enough)
      .add_list("evidence", each.candidate->evidence, evidence_json)
      .str();
}

std::string choice_json(const PlanChooseArguments& a, const Asked& asked,
                        const MethodChoice& choice, const std::optional<AfterRun>& after) {
  const ChoiceQuestion& question = asked.question;
  const TimedCandidate& chosen = choice.candidates[choice.chosen];
  JsonLine line;
  line.add("sites", question.members)
      .add("links", asked.links.origin)
      .add("slowest", asked.links.slowest)
      .add("link_model", a.link_model)
      .add("params", question.parameters)
      .add("layers", question.layers)
      .add("step_s", question.step_s)
      .add("least_computing", a.computing);
  if (asked.mesh) {
    line.add("mesh", plan::mesh_text(asked.mesh->choice)).add("model", asked.model);
  }
  line.add_raw("chosen", method_json(chosen, question.layers))
      .add_list("candidates", choice.candidates,
                [&](const TimedCandidate& each) { return method_json(each, question.layers); });
  if (a.steps) line.add("run_s", chosen.time.step_s * static_cast<double>(*a.steps));
  if (after) line.add_raw("after", after_json(*after));
  return line.str() + "\n";
}

/// In percent: 100 stands for all of the time alone.
std::string share_text(double share) {
  constexpr double kLooksWhole = 0.9995;
  return share < 1 && share >= kLooksWhole ? fmt::format("{:.6g}", 100 * share)
                                           : fmt::format("{:.1f}", 100 * share);
}

void print_choice(const PlanChooseArguments& a, const Asked& asked, const MethodChoice& choice,
                  Session& session) {
  const ChoiceQuestion& question = asked.question;
  const TimedCandidate& chosen = choice.candidates[choice.chosen];
  TextTable table({"method", "H", "codec", "a step", "computing", "sent a step", "choice"});
  for (std::size_t i = 0; i < choice.candidates.size(); ++i) {
    const TimedCandidate& each = choice.candidates[i];
    table.add({std::string(each.candidate->method), fmt::format("{}", each.candidate->H),
               std::string(each.candidate->codec), human_time(each.time.step_s),
               share_text(each.time.computing) + "%", human_bytes(each.time.step_bytes),
               i == choice.chosen ? "chosen" : ""});
  }
  session.out.write(
      fmt::format("{} parameters, {} layers, {} of computing a step, {} sites: {}\nslowest link: "
                  "{} ({})\n\n{}\n",
                  parameters_text(question.parameters), question.layers,
                  human_time(question.step_s), question.members, join(asked.links.sites, ", "),
                  asked.links.slowest, asked.links.origin, table.text(session.out)));
  const auto paragraph = [&session](const std::string& text) {
    session.out.write(wrapped(text, 0, session.out.width()));
  };
  paragraph(fmt::format(
      "{}: {} computes {} % of the time.",
      chosen.enough
          ? fmt::format("The mildest that computes {:.6g} % of the time", 100 * a.computing)
          : fmt::format("None computes {:.6g} % of the time; the fastest", 100 * a.computing),
      chosen.candidate->method, share_text(chosen.time.computing)));
  if (a.steps) {
    paragraph(fmt::format("{} steps take {}.", *a.steps,
                          human_time(chosen.time.step_s * static_cast<double>(*a.steps))));
  }
  if (asked.mesh) {
    paragraph(fmt::format("Mesh of a site for {}: {}, {} a step.", asked.model,
                          plan::mesh_text(asked.mesh->choice), human_time(asked.mesh->time.step)));
  }
  session.out.write("\nWhat is known of its loss:\n");
  for (const ChoiceEvidence& piece : chosen.candidate->evidence) {
    session.out.write(
        wrapped(fmt::format("- {}: {}.", piece.source, piece.claim), 0, session.out.width()));
  }
  session.out.write(
      fmt::format("\nisthmus train run.toml --links {} --set {}\n", a.links.string(),
                  join(candidate_settings(*chosen.candidate, question.layers), " --set ")));
}

std::string off_by(double predicted, double measured) {
  return fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
}

void print_after(const PlanChooseArguments& a, const AfterRun& after, Session& session) {
  const double measured_rest = after.measured_step_s - after.measured_compute_s;
  const double predicted_rest = after.predicted_step_s - after.predicted_compute_s;
  TextTable table({"a step of " + a.after.string(), "predicted", "measured", "off by"});
  const auto row = [&table](const std::string& name, double predicted, double measured) {
    table.add({name, human_time(predicted), human_time(measured),
               measured > 0 ? off_by(predicted, measured) : "-"});
  };
  row("computing", after.predicted_compute_s, after.measured_compute_s);
  row("waiting for exchanges", std::max(0.0, predicted_rest), std::max(0.0, measured_rest));
  row("in all", after.predicted_step_s, after.measured_step_s);
  session.out.write(fmt::format("\n{}It ran {} with H = {}{} for {} steps{}.\n",
                                table.text(session.out), after.method, after.H,
                                after.codec.empty() ? "" : ", " + after.codec, after.steps,
                                after.chosen ? ", which is what is chosen here"
                                             : "; another method or setting is chosen here"));
}

}  // namespace

int command_plan_choose(const PlanChooseArguments& a, Session& session) {
  const Asked asked = asked_of(a);
  if (asked.links.has_traces) {
    session.err.write(fmt::format(
        "note: {} has a [[link]] with a trace; the plan takes its mean rate: `simulate` plays it\n",
        a.links.string()));
  }
  const MethodChoice choice = choose_method(asked.question, a.computing);
  std::optional<AfterRun> after;
  if (!a.after.empty()) {
    after = after_run(a, asked, choice);
    for (const std::string& note : after->notes) session.err.write("note: " + note + "\n");
  }
  if (session.json) {
    session.out.write(choice_json(a, asked, choice, after));
    return 0;
  }
  print_choice(a, asked, choice, session);
  if (after) print_after(a, *after, session);
  return 0;
}

}  // namespace isthmus::app
