// SPDX-License-Identifier: Apache-2.0
// `plan pipeline`: draws a pipeline schedule, checks it and compares it with the others.
#include <fmt/format.h>

#include "app/commands/plan/command_plan.h"
#include "app/common/text_table.h"
#include "inner/mesh/pipeline_schedule_check.h"
#include "inner/mesh/pipeline_schedule_text.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

constexpr double kLongest = 1e9;  // of a pass

PipelineTiming timing_of(const PlanPipelineArguments& a) {
  for (const auto& [flag, value, least] :
       {std::tuple{"--forward", a.forward, 1e-9}, std::tuple{"--backward", a.backward_input, 1e-9},
        std::tuple{"--weight", a.backward_weight, 0.0}, std::tuple{"--message", a.message, 0.0}}) {
    if (!(value >= least) || value > kLongest) {
      throw UsageError(fmt::format("plan pipeline: {} {:g}: must be {} and at most {:g}", flag,
                                   value, least > 0 ? "above 0" : "at least 0", kLongest));
    }
  }
  PipelineTiming timing;
  timing.stages = {{a.forward, a.backward_input, a.backward_weight}};
  timing.message = a.message;
  if (a.on_receive) timing.sends = SendMode::kOnReceive;
  return timing;
}

PipelineKind kind_of(const PlanPipelineArguments& a) {
  if (!a.schedule.empty()) return parse_pipeline_kind(a.schedule);
  return a.virtual_stages.value_or(1) > 1 ? PipelineKind::kInterleaved : PipelineKind::k1F1B;
}

std::int64_t sends_of(const PipelineSchedule& schedule, int rank) {
  std::int64_t sends = 0;
  for (const PipelineOp& op : schedule.operations[static_cast<std::size_t>(rank)]) {
    const bool send =
        op.kind == PipelineOpKind::kSendForward || op.kind == PipelineOpKind::kSendBackward;
    sends += send ? 1 : 0;
  }
  return sends;
}

/// One schedule, played.
struct Played {
  PipelineSchedule schedule;
  PipelineReport report;
  double formula = 0;  // of the bubble without messages
  std::int64_t sends = 0;
  int in_flight = 0;  // of the rank that holds most, in chunks
};

Played played(PipelineKind kind, const PlanPipelineArguments& a, int chunks) {
  Played result;
  result.schedule = make_pipeline_schedule(kind, a.stages, a.micro_batches, chunks);
  PipelineTiming timing = timing_of(a);
  // A chunk is a share of a rank's work for a micro-batch.
  StageTimes& pass = timing.stages.front();
  for (double* time : {&pass.forward, &pass.backward_input, &pass.backward_weight}) {
    *time /= chunks;
  }
  auto report = check_pipeline(result.schedule, timing);
  if (!report) throw RunError(fmt::format("{}: {}", pipeline_name(kind), report.error().text));
  result.report = *std::move(report);
  result.formula =
      pipeline_bubble(result.schedule, pass.forward, pass.backward_input, pass.backward_weight);
  for (int rank = 0; rank < a.stages; ++rank) {
    result.sends = std::max(result.sends, sends_of(result.schedule, rank));
    result.in_flight =
        std::max(result.in_flight, result.report.ranks[static_cast<std::size_t>(rank)].in_flight);
  }
  return result;
}

std::string json_of(const Played& p, const PlanPipelineArguments& a) {
  std::vector<std::string> ranks;
  for (std::size_t rank = 0; rank < p.report.ranks.size(); ++rank) {
    const PipelineRankReport& report = p.report.ranks[rank];
    const auto pass_json = [](const PipelinePass& pass) {
      constexpr std::string_view kNames[] = {"F", "B", "B", "W"};
      return JsonLine()
          .add("pass", kNames[static_cast<std::size_t>(pass.operation.kind)])
          .add("chunk", pass.operation.chunk)
          .add("micro_batch", pass.operation.micro_batch)
          .add("begin", pass.begin)
          .add("end", pass.end);
    };
    JsonLine line;
    line.add("rank", rank)
        .add("busy", report.busy)
        .add("in_flight", report.in_flight)
        .add("sends", sends_of(p.schedule, static_cast<int>(rank)))
        .add_list("passes", report.passes, pass_json);
    ranks.push_back(line.str());
  }
  JsonLine line;
  line.add("schedule", pipeline_name(p.schedule.kind))
      .add("stages", a.stages)
      .add("virtual_stages", p.schedule.chunks)
      .add("micro_batches", a.micro_batches)
      .add("makespan", p.report.makespan)
      .add("bubble", p.report.bubble)
      .add("bubble_share", p.report.bubble_share())
      .add("formula", p.formula)
      .add_raw("ranks", json_array(ranks));
  return line.str();
}

void draw(const Played& p, Session& session) {
  PipelineTextOptions options;
  options.width = session.out.width();
  if (session.out.unicode()) options.waiting = "·";
  if (session.out.color()) {
    options.paint = [&session](PipelineOpKind kind, bool later, std::string_view text) {
      if (kind == PipelineOpKind::kForward) {
        return session.out.paint(later ? Style::kBold : Style::kAccent, text);
      }
      if (kind == PipelineOpKind::kBackwardWeight) return session.out.paint(Style::kDim, text);
      return session.out.paint(later ? Style::kWarn : Style::kGood, text);
    };
  }
  session.out.write(draw_pipeline(p.schedule, p.report, options));
}

/// The other schedules of the same shape.
void compare(const Played& shown, const PlanPipelineArguments& a, Session& session) {
  TextTable table({"schedule", "virtual", "bubble", "idle", "formula", "in flight", "sends", ""});
  const auto add = [&](const Played& p, bool marked) {
    const double held = static_cast<double>(p.in_flight) / p.schedule.chunks;
    table.add({std::string(pipeline_name(p.schedule.kind)), fmt::format("{}", p.schedule.chunks),
               fmt::format("{:.1f}%", 100 * p.report.bubble_share()),
               fmt::format("{:.4g}", p.report.bubble), fmt::format("{:.4g}", p.formula),
               fmt::format("{:.4g}", held), fmt::format("{}", p.sends), marked ? "<- drawn" : ""});
  };
  std::string refused;
  for (const PipelineKind kind : pipeline_kinds()) {
    const bool same = kind == shown.schedule.kind;
    const int chunks = same ? shown.schedule.chunks : (kind == PipelineKind::kInterleaved ? 2 : 1);
    try {
      add(same ? shown : played(kind, a, chunks), same);
    } catch (const ConfigError& error) {
      refused += fmt::format("{}: {}\n", pipeline_name(kind), error.what());
    }
  }
  session.out.write("\n" + table.text(session.out) + refused + "\n");
}

}  // namespace

int command_plan_pipeline(const PlanPipelineArguments& a, Session& session) {
  const PipelineKind kind = kind_of(a);
  const int chunks = a.virtual_stages.value_or(kind == PipelineKind::kInterleaved ? 2 : 1);
  const Played shown = played(kind, a, chunks);
  if (session.json) {
    session.out.write(json_of(shown, a) + "\n");
    return 0;
  }
  session.out.write(fmt::format(
      "{}: {} stages{}, {} micro-batches; a stage takes {:g} forward, {:g} backward for inputs, "
      "{:g} for weights{}\n\n",
      pipeline_name(kind), a.stages, chunks > 1 ? fmt::format(" of {} chunks", chunks) : "",
      a.micro_batches, a.forward, a.backward_input, a.backward_weight,
      a.message > 0 ? fmt::format(", a message {:g}", a.message) : ""));
  draw(shown, session);
  compare(shown, a, session);
  session.out.write(wrapped(
      "Every pass is there once, in a right order, without deadlock. Bubble: share of the step in "
      "which the busiest rank waits; formula: its idle time without messages; in flight: "
      "micro-batches whose activations the fullest rank holds, of a whole stage; sends: of one "
      "rank in a step.",
      0, session.out.width()));
  return 0;
}

}  // namespace isthmus::app
