// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_estimate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>

#include "app/train/config_to_options.h"
#include "app/train/device_choice.h"
#include "app/train/hf_model.h"
#include "app/train/last_windows.h"
#include "app/train/memory_check.h"
#include "app/train/model_steps.h"
#include "app/train/offload.h"
#include "app/train/rank_communicators.h"
#include "app/train/run_prediction.h"
#include "app/train/site_lanes.h"
#include "config/schema/device_request.h"
#include "core/base/units.h"
#include "data/appended_data.h"
#include "data/tokenize/conversation_data.h"
#include "inner/hf/hf_weights.h"
#include "inner/loop/model_cost.h"
#include "inner/model/schedule.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "outer/parts/settings.h"
#include "record/build_info.h"
#include "record/json_line.h"
#include "session/run/owner_shares.h"
#include "session/site/site_links.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kEstimateFloatBytes = 4;
// Memory that a run of any model touches and an estimate does not: code of the steps, threads,
// files. Measured: 2.4 to 3.7 MB without oneDNN, 2.5 to 4.4 MB with it, beside 17 and 21 MB of the
// program.
constexpr std::uint64_t kRunItself = 3'200'000;
// Of that, memory without pages of files, beside rounds and checkpoints. Measured: 0.33 to 0.39 MB
// in twelve runs of four models.
constexpr std::uint64_t kRunItselfAnonymous = 345'000;

/// For the site whose first rank has most.
std::optional<LaneEstimate> lane_estimate(const Config& config, const TrainingPlan& plan,
                                          const ModelLayout& layout, std::optional<WorkerId> only) {
  std::optional<LaneEstimate> most;
  const std::optional<outer::LaneDemand> demand = lanes_of(config, layout);
  for (int m = 0; m < plan.workers && demand; ++m) {
    const int ranks = plan.mesh(WorkerId(m)).shape.ranks();
    if (ranks == 1 || only.value_or(WorkerId(m)) != WorkerId(m)) continue;
    const LaneEstimate here{.first = outer::lane_memory(*demand, ranks, 0),
                            .last = outer::lane_memory(*demand, ranks, ranks - 1)};
    if (!most || here.first.most() > most->first.most()) most = here;
  }
  return most;
}

/// The bytes of one worker beside its training state: its encoded contribution, the incoming bytes
/// (none where it is alone), and the result, of all rounds in flight.
std::uint64_t round_bytes(const Config& config, const ModelLayout& layout) {
  const OuterOptions& options = config.outer;
  std::int64_t largest = layout.elements();
  std::int64_t at_once = 1;
  if (outer_state_values(config.method, options) > 0) {
    const std::vector<Fragment> fragments =
        make_fragments(parameters_without_values(layout), options.fragments, options.pattern,
                       options.embeddings_own);
    largest = 0;
    for (const Fragment& each : fragments) largest = std::max(largest, each.elements);
    const std::int64_t H = std::max<std::int64_t>(options.H, 1);
    at_once += info_of(config.method).round_behind
                   ? 1
                   : (options.overlap * std::ssize(fragments) + H - 1) / H;
  } else if (forward_only(config)) {
    return 0;  // a few numbers
  }
  const auto codec = make_codec(outer::codec_of(info_of(config.method), options));
  const auto values = static_cast<std::size_t>(largest);
  const std::size_t encodings = config.workers() == 1 ? 1 : 2;
  return static_cast<std::uint64_t>(at_once) *
         (encodings * codec->encoded_bytes(values) + kEstimateFloatBytes * values);
}

/// Why a run on this machine would be refused for its device; empty where it would not. The
/// estimate may be meant for another machine.
std::string device_refusal(const Config& config, const ModelLayout& layout,
                           std::optional<WorkerId> only) {
  if (!asks_for_cuda(config) && !outer_is_on_device(config) && !names_device_sums(config) &&
      config.train.attention != "cudnn") {
    return "";
  }
  try {
    const TrainingPlan plan = make_training_plan(config, kernels::usable_cores(), only);
    static_cast<void>(choose_device(config, plan, layout, false));
    return "";
  } catch (const Error& error) {
    return fmt::format("on this machine the run is refused: {}", error.what());
  }
}

}  // namespace

RunEstimate estimate_run(const Config& config, bool simulated, const EstimateOf& of) {
  const std::optional<WorkerId> only = of.only;
  const std::optional<std::vector<DataFile>>& begun_with = of.begun_with;
  const SystemStorage storage;
  const ReadingRules rules = begun_with ? rules_of(*begun_with) : ReadingRules::kOfToday;
  const TrainingPlan plan = make_training_plan(config, kernels::usable_cores());
  const Dataset data = open_data(storage, config, rules);
  const ModelLayout layout(model_shape(config.model, config.train.context));
  check_data_and_exchange(config, plan, layout, data);
  const std::string further_tokens = check_tokenizer(storage, config, data, begun_with.has_value());
  const std::uint64_t before_weights = peak_bytes();
  InitialWeights initial = check_initial_weights(storage, config);
  const std::uint64_t after_weights = peak_bytes();
  (void)LearningRateSchedule(config.inner, plan.total_steps);
  (void)owner_shares(config);  // checks

  const RunWorld world{.config = config,
                       .plan = plan,
                       .simulated = simulated,
                       .byte_scale = simulated ? surrogate_byte_scale(config, layout) : 1.0};
  const ModelRun run{.world = world, .plan = plan, .layout = layout};
  std::int64_t inner_bytes = 0;
  const int first = only ? only->value() : 0;
  const int workers_here = only ? 1 : plan.workers;
  for (int m = first; m < first + workers_here; ++m) {
    inner_bytes += loop_memory(layout, language_model_options(config, plan, WorkerId(m))).total();
  }
  const std::int64_t outer_values =
      outer_state_values(config.method, config.outer) * layout.elements();
  RunEstimate estimate{
      .parameters = layout.elements(),
      .steps = plan.total_steps,
      .tokens = plan.total_steps * plan.tokens_per_step(config.train.context),
      .step_flops = step_flops(config, plan, layout),
      .memory_bytes = static_cast<std::uint64_t>(inner_bytes +
                                                 kEstimateFloatBytes * outer_values * workers_here),
      .round_bytes = static_cast<std::uint64_t>(workers_here) * round_bytes(config, layout),
      .checkpoint_copy_bytes =
          config.train.offload.empty() ? checkpoint_bytes(config, plan, layout, only) : 0,
      .outer_bytes_per_parameter =
          kEstimateFloatBytes * outer_state_values(config.method, config.outer),
      .lanes = lane_estimate(config, plan, layout, only),
      .epochs = epochs(config, data),
      .sources =
          data.sources().size() > 1 ? passes_by_source(config, data) : std::vector<SourcePasses>(),
      .data_note = epochs_note(config, data),
      .conversations = conversations_texts(data),
      .packed = packed_sources(data)};
  check_offload(config, plan, layout, only);
  check_rank_communicators(config, plan);
  if (of.out) {
    estimate.checkpoints =
        checkpoint_room(storage, config, plan, layout,
                        {.out = *of.out, .only = only, .goes_on = of.resume == "auto"});
    check_checkpoint_room(*estimate.checkpoints, config, *of.out);
  }
  if (!config.train.offload.empty()) {
    estimate.offload_bytes = offload_bytes(config, plan, layout, only);
    estimate.memory_bytes = memory_beside_offload(config, plan, layout, only);
  }
  if (only && takes_steps_back(config, {})) {
    const MemoryEstimate inner = loop_memory(layout, language_model_options(config, plan, *only));
    const bool feeds_back =
        make_codec(outer::codec_of(info_of(config.method), config.outer))->error_feedback();
    estimate.copy_bytes =
        static_cast<std::uint64_t>(inner.parameters + inner.moments +
                                   (feeds_back ? kEstimateFloatBytes * layout.elements() : 0));
    estimate.memory_bytes += estimate.copy_bytes;
  }
  // Without a declared step time the bytes hold and the times do not: they are left out.
  const bool timed = simulated && declares_step_time(config);
  const Prediction prediction = predict_run(run, {Duration{1}});
  estimate.payload_bytes = prediction.payload_bytes;
  estimate.wire_bytes = prediction.wire_bytes;
  estimate.closing = prediction.closing;
  const outer::RunEnd end = run_end_of(config, layout);
  estimate.closing_window = closing_window_text(config, end);
  if (timed) {
    estimate.prediction = prediction;
  }
  // What reading the model has taken is free again before a run has its peak.
  const std::uint64_t peak = peak_bytes();
  estimate.program_bytes = (peak > after_weights ? peak : before_weights) + kRunItself;
  estimate.program_anonymous_bytes = anonymous_bytes() + kRunItselfAnonymous;
  if (!config.model.init.empty()) {  // checks
    ModelNotes notes = model_notes(storage, config.locate(config.model.init), layout.shape(),
                                   std::move(initial.not_read), data.is_bytes());
    estimate.left_out = std::move(notes.left_out);
    estimate.data_warnings = std::move(notes.odd);
  } else if (const auto tokenizer = tokenizer_of_data(storage, config, data)) {
    HfCompanions unused;
    estimate.data_warnings = add_tokenizer(unused, storage, *tokenizer, config.model.vocab);
  }
  for (const std::string& note :
       {binary_note(data), json_lines_note(data), conversations_warning(data), further_tokens}) {
    if (!note.empty()) estimate.data_warnings.push_back(note);
  }
  if (of.resume != "never") {
    const std::vector<DataFile> files = data.fingerprint();
    estimate.goes_on = preview_resume(storage, config,
                                      {.out = of.out.value_or(std::filesystem::path()),
                                       .resume = of.resume,
                                       .changes = of.changes,
                                       .only = only,
                                       .data = files,
                                       .tokens_of_beginning =
                                           [&data](std::span<const DataFile> before) {
                                             return tokens_of_beginning(data, before);
                                           },
                                       .base_digest = initial.base_digest});
  }
  if (!estimate.goes_on || !estimate.goes_on->is_complete(estimate.steps)) {
    estimate.warnings = warnings_about_end(config, end);
    estimate.warnings.insert(estimate.warnings.end(), estimate.data_warnings.begin(),
                             estimate.data_warnings.end());
    for (const std::string& text :
         {short_of_inner_warmup(config), unapplied_text_of_init(storage, config),
          simulated ? "" : device_refusal(config, layout, only)}) {
      if (!text.empty()) estimate.warnings.push_back(text);
    }
  }
  return estimate;
}

namespace {

std::string goes_on_text(const ResumePreview& preview, std::int64_t steps) {
  if (!preview.checkpoint) return "from no checkpoint: there is none, and the run would begin";
  return fmt::format("after step {} of {}, from {}{}", preview.step, steps,
                     preview.checkpoint->string(),
                     preview.is_complete(steps) ? ": the run is complete" : "");
}

}  // namespace

double measured_speed(Config config) {
  config.train.threads = 1;
  const SystemStorage storage;
  const Dataset data = open_data(storage, config);
  const TrainingPlan plan = make_training_plan(config, kernels::usable_cores());
  const ModelLayout layout(model_shape(config.model, config.train.context));
  return step_flops(config, plan, layout) / in_seconds(time_step(config, plan, data));
}

std::string render_estimate(const Config& config, const RunEstimate& estimate) {
  std::string text = fmt::format("{}: would train, nothing was written\n", config.run.name);
  const auto row = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<14}{}\n", name, value);
  };
  if (estimate.goes_on) row("goes on", goes_on_text(*estimate.goes_on, estimate.steps));
  if (estimate.goes_on) {
    for (const std::string& change : estimate.goes_on->changes) row("change", change);
  }
  row("model",
      fmt::format("{} parameters, {}", human_count(static_cast<double>(estimate.parameters)),
                  config.model.arch));
  if (!estimate.left_out.empty()) {
    row("left out", fmt::format("of model.init = \"{}\": {}", config.model.init.string(),
                                fmt::join(estimate.left_out, ", ")));
  }
  row("method", fmt::format("{}, {} worker{}", config.method, config.workers(),
                            config.workers() == 1 ? "" : "s"));
  row("steps", fmt::format("{}, {} tokens", estimate.steps,
                           human_count(static_cast<double>(estimate.tokens))));
  for (const SourcePasses& source : estimate.sources) {
    row(&source == &estimate.sources.front() ? "mix" : "",
        fmt::format("{}: {:.4g} % of the samples, {} passes over its {} training tokens",
                    source.name, 100 * source.share, passes_text(source.passes),
                    with_commas(source.train_tokens)));
  }
  for (const std::string& conversations : estimate.conversations) {
    row("learns", conversations);
  }
  if (config.data.pack == "documents" && estimate.conversations.empty()) {
    row("documents", "attention, positions and loss stay inside each document of a window");
  }
  if (!estimate.data_note.empty()) row("data", estimate.data_note);
  row("compute",
      fmt::format("{} operations (FLOP) a step and worker", human_count(estimate.step_flops)));
  row("memory", fmt::format("{} in this process, beside {} of the program itself",
                            human_bytes(static_cast<double>(estimate.memory_bytes)),
                            human_bytes(static_cast<double>(estimate.program_bytes))));
  if (estimate.round_bytes + estimate.checkpoint_copy_bytes > 0) {
    const auto bytes = [](std::uint64_t n) { return human_bytes(static_cast<double>(n)); };
    row("beside it",
        fmt::format("up to {} while rounds are under way, and {} while a checkpoint is written",
                    bytes(estimate.round_bytes), bytes(estimate.checkpoint_copy_bytes)));
    row("", "freed memory is kept for the next round: the process may take 1.5 times these sums");
  }
  if (estimate.copy_bytes > 0) {
    row("kept copy", fmt::format("{} of that: the last committed step (outer.commit)",
                                 human_bytes(static_cast<double>(estimate.copy_bytes))));
  }
  if (estimate.offload_bytes > 0) {
    row("files", fmt::format("{} in train.offload = \"{}\"",
                             human_bytes(static_cast<double>(estimate.offload_bytes)),
                             config.train.offload));
  }
  if (estimate.checkpoints) {
    const CheckpointRoom& room = *estimate.checkpoints;
    const auto bytes = [](std::uint64_t n) { return human_bytes(static_cast<double>(n)); };
    row("checkpoints", fmt::format("{} each, {} at a time; {} free on that disk", bytes(room.each),
                                   room.at_once, bytes(room.free)));
  }
  row("outer state", fmt::format("{} bytes a parameter and worker (`isthmus explain {}`)",
                                 estimate.outer_bytes_per_parameter, config.method));
  if (estimate.lanes) {
    const auto bytes = [](std::int64_t n) { return human_bytes(static_cast<double>(n)); };
    const outer::LaneMemory& first = estimate.lanes->first;
    const outer::LaneMemory& last = estimate.lanes->last;
    row("in lanes", fmt::format("of ranks that are processes: {} at a site's first, {} of that for "
                                "a moment; {} and {} at each other (outer.placement)",
                                bytes(first.most()), bytes(first.scratch()), bytes(last.most()),
                                bytes(last.scratch())));
  }
  row("sent", fmt::format("{} by one worker ({} of values)",
                          human_bytes(static_cast<double>(estimate.wire_bytes)),
                          human_bytes(static_cast<double>(estimate.payload_bytes))));
  if (!estimate.closing_window.empty()) {
    row("closing round",
        fmt::format(
            "{} of that, for {}{}", human_bytes(static_cast<double>(estimate.closing.wire_bytes)),
            estimate.closing_window,
            estimate.prediction ? fmt::format("; it takes {}", human_time(estimate.closing.seconds))
                                : ""));
  }
  for (const std::string& warning : estimate.warnings) row("warning", warning);
  if (!config.faults.empty()) {
    row("faults", fmt::format("{} in the file, not in this estimate: `simulate` plays them",
                              config.faults.size()));
  }
  if (has_traces(config)) {
    row("traces", "this estimate takes the mean rate of each trace: `simulate` plays them");
  }
  if (config.outer.late == LateRound::kSlip) {
    row("late", "this estimate waits for late results: `simulate` lets them slip");
  }
  if (goes_by_arrival(config)) {
    row("merges",
        "this estimate is the fastest site's and waits for no late one: `simulate` plays "
        "the merges");
  }
  if (estimate.prediction) {
    text += "\n" + render_prediction(*estimate.prediction, 0);
  }
  return text;
}

namespace {

/// null where every step is in a regular round.
std::string closing_json(const RunEstimate& estimate) {
  if (estimate.closing_window.empty()) return "null";
  JsonLine line;
  line.add("window", estimate.closing_window)
      .add("rounds", estimate.closing.rounds)
      .add("bytes_payload", estimate.closing.payload_bytes)
      .add("bytes_wire", estimate.closing.wire_bytes);
  estimate.prediction ? line.add("predicted_s", estimate.closing.seconds)
                      : line.add_null("predicted_s");
  return line.str();
}

std::string conversations_json(const ConversationFacts& facts) {
  const ConversationCounts& counts = facts.counts;
  return JsonLine()
      .add("conversations", counts.conversations)
      .add("tokens", counts.tokens)
      .add("learnt", counts.learnt)
      .add("cut", counts.cut)
      .add("too_long", counts.dropped)
      .add("nothing_to_learn", counts.without_reply)
      .add("malformed", counts.skipped)
      .add("train_windows", facts.training_rows)
      .add("validation_windows", facts.validation_rows)
      .str();
}

}  // namespace

std::string estimate_json(const RunEstimate& estimate) {
  JsonLine line;
  line.add("parameters", estimate.parameters)
      .add("steps", estimate.steps)
      .add("tokens", estimate.tokens)
      .add("epochs", estimate.epochs);
  if (!estimate.sources.empty()) {
    JsonLine sources;
    for (const SourcePasses& source : estimate.sources) {
      JsonLine one;
      one.add("share", source.share)
          .add("train_tokens", source.train_tokens)
          .add("epochs", source.passes);
      sources.add_raw(source.name, one.str());
    }
    line.add_raw("sources", sources.str());
  }
  if (!estimate.packed.empty()) {
    JsonLine sources;
    for (const auto& [name, packed] : estimate.packed) {
      sources.add_raw(name.empty() ? "data" : name, conversations_json(packed));
    }
    line.add_raw("conversations", sources.str());
  }
  line.add("step_flops", estimate.step_flops)
      .add("memory_bytes", estimate.memory_bytes)
      .add("program_bytes", estimate.program_bytes)
      .add("program_anonymous_bytes", estimate.program_anonymous_bytes)
      .add("round_bytes", estimate.round_bytes)
      .add("checkpoint_copy_bytes", estimate.checkpoint_copy_bytes)
      .add("offload_bytes", estimate.offload_bytes)
      .add("outer_bytes_per_parameter", estimate.outer_bytes_per_parameter);
  if (estimate.lanes) {
    line.add("lane_bytes_of_first", estimate.lanes->first.most())
        .add("lane_bytes_of_others", estimate.lanes->last.most());
  }
  if (estimate.checkpoints) {
    line.add("checkpoint_bytes", estimate.checkpoints->each)
        .add("checkpoints_at_once", estimate.checkpoints->at_once)
        .add("disk_free_bytes", estimate.checkpoints->free);
  }
  if (estimate.goes_on) {
    line.add("resumes_after_step", estimate.goes_on->step)
        .add("changes", std::span<const std::string>(estimate.goes_on->changes));
  }
  line.add("bytes_payload", estimate.payload_bytes).add("bytes_wire", estimate.wire_bytes);
  line.add_raw("closing_round", closing_json(estimate));
  if (!estimate.left_out.empty()) {
    line.add("left_out", std::span<const std::string>(estimate.left_out));
  }
  line.add("warnings", std::span<const std::string>(estimate.warnings));
  if (estimate.prediction) {
    line.add("predicted_s", estimate.prediction->predicted_s)
        .add("predicted_utilisation", estimate.prediction->utilisation);
  } else {
    line.add_null("predicted_s");
  }
  return line.str();
}

}  // namespace isthmus::app
