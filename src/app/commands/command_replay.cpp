// SPDX-License-Identifier: Apache-2.0
// `replay LOG BASE`: the weights of an spsa run from where it began and its log alone, as a member
// that comes late makes them (docs/internals/spsa.md).
#include "app/commands/command_replay.h"

#include <fmt/format.h>

#include <cstring>

#include "app/train/hf_model.h"
#include "core/base/units.h"
#include "core/state/checkpoint.h"
#include "inner/hf/hf_weights.h"
#include "isthmus/errors.h"
#include "kernels/thread_team.h"
#include "outer/parts/spsa_log.h"
#include "outer/parts/spsa_replay.h"
#include "record/json_line.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

using outer::SpsaLog;

SpsaLog read_log(const Storage& storage, const std::filesystem::path& file) {
  const std::string text = read_text(storage, file);
  auto log = SpsaLog::parse(std::as_bytes(std::span(text)));
  if (!log) {
    throw RunError(fmt::format("{}: {}", file.string(), log.error().what));
  }
  return std::move(*log);
}

/// Weights of a folder, and the step they are those after: nothing where it does not say.
struct Base {
  HfModel model;
  std::optional<StepIndex> step;
};

Base read_base(const Storage& storage, const std::filesystem::path& folder) {
  const HfConfig config = read_hf_config(storage, folder);
  Base base{HfModel(model_shape(config.model, config.model.context)), std::nullopt};
  if (storage.kind(folder / "state.json") == FileKind::kFile) {
    base.step = StepIndex(Checkpoint::open(storage, folder).info().step);  // every byte verified
  }
  load_hf_weights(storage, folder, base.model.parameters());
  return base;
}

/// THROWS: RunError unless `model` has the bits of the weights in `folder`.
void expect_bits(const Storage& storage, const std::filesystem::path& folder, StepIndex step,
                 const HfModel& model) {
  const Base expected = read_base(storage, folder);
  if (expected.step && *expected.step != step) {
    throw RunError(fmt::format("--expect {}: has the weights after step {}, the log ends with {}",
                               folder.string(), expected.step->value(), step.value()));
  }
  const std::vector<float>& want = expected.model.values;
  if (want.size() != model.values.size()) {
    throw RunError(fmt::format("--expect {}: another model, of {} parameters instead of {}",
                               folder.string(), want.size(), model.values.size()));
  }
  std::size_t differing = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    differing += std::memcmp(&want[i], &model.values[i], sizeof(float)) == 0 ? 0 : 1;
  }
  if (differing > 0) {
    throw RunError(fmt::format(
        "--expect {}: {} of {} weights differ from those replayed; name a model of this "
        "run after the same step",
        folder.string(), differing, want.size()));
  }
}

}  // namespace

int command_replay(const ReplayArguments& arguments, Session& session) {
  SystemStorage storage;
  if (!arguments.out.empty()) check_model_target(storage, arguments.out);
  const SpsaLog log = read_log(storage, arguments.log);
  Base base = read_base(storage, arguments.base);
  const StepIndex from = base.step.value_or(log.header().base_step);
  const std::vector<Parameter> parameters = base.model.parameters();
  kernels::ThreadTeam team(static_cast<int>(kernels::usable_cores().size()));
  const double begin = monotonic_now();
  const auto done = outer::replay(log, from, log.last(), parameters, team);
  const double seconds = monotonic_now() - begin;
  if (!done) {
    throw RunError(fmt::format("{} over {}: {}", arguments.log.string(), arguments.base.string(),
                               done.error().what));
  }
  if (!arguments.expect.empty()) {
    expect_bits(storage, arguments.expect, log.last(), base.model);
  }
  ModelNotes notes;
  if (!arguments.out.empty()) {
    notes = base.model.write(storage, arguments.out, arguments.base);
  }
  std::size_t entries = 0;
  for (StepIndex t = from; t < log.last();) {
    ++t;
    entries += log.record(t).codes.size();
  }
  const std::size_t log_bytes =
      log.cut(from, {}).bytes().size();  // as a member after `from` gets it
  const std::string weights = outer::weights_digest(parameters).hex();
  const std::size_t model_bytes = base.model.values.size() * sizeof(float);
  if (!arguments.out.empty()) {
    session.wrote(arguments.out);
  }
  if (session.json) {
    session.answer(JsonLine()
                       .add("kind", "replay")
                       .add("log", arguments.log.string())
                       .add("base", arguments.base.string())
                       .add("from_step", from.value())
                       .add("to_step", log.last().value())
                       .add("entries", entries)
                       .add("parameters", base.model.values.size())
                       .add("log_bytes", log_bytes)
                       .add("model_bytes", model_bytes)
                       .add("threads", team.size())
                       .add("replay_s", seconds)
                       .add("weights", weights)
                       .add("as_expected", !arguments.expect.empty()));
    return 0;
  }
  session.out.write(fmt::format(
      "steps {} to {}, {} entries, replayed in {}; their log is {}, the weights are {}\n"
      "weights {}{}\n",
      from.value() + 1, log.last().value(), with_commas(static_cast<std::int64_t>(entries)),
      human_time(seconds), human_bytes(static_cast<double>(log_bytes)),
      human_bytes(static_cast<double>(model_bytes)), weights,
      arguments.expect.empty()
          ? ""
          : fmt::format(", bit for bit those of {}", arguments.expect.string())));
  if (!arguments.out.empty()) {
    session.out.write(fmt::format("wrote {}\n", arguments.out.string()));
    notes.tell(session);
  }
  return 0;
}

}  // namespace isthmus::app
