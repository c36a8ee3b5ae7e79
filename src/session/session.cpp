// SPDX-License-Identifier: Apache-2.0
// The run of a trainer of the caller's (isthmus/session.h), over RunSession.
#include "isthmus/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "core/base/log.h"
#include "core/base/storage.h"
#include "isthmus/codec.h"
#include "session/checks/change_check.h"
#include "session/checks/checkpoint_room.h"
#include "session/checks/last_windows.h"
#include "session/come_back.h"
#include "session/outcome_summary.h"
#include "session/run/begun_run.h"
#include "session/run/run_changes.h"
#include "session/run/run_settings.h"
#include "session/run/run_start.h"
#include "session/run/trainer_facts.h"
#include "session/run_checks.h"
#include "session/run_session.h"
#include "session/site/site_enrolment.h"

namespace isthmus {
namespace app {
namespace {

std::optional<SiteArguments> own_site(const RunArguments& arguments) {
  if (arguments.site.empty()) return std::nullopt;
  return SiteArguments{.name = arguments.site,
                       .listen = arguments.listen,
                       .key_file = arguments.key_file,
                       .addresses = {}};
}

void check_arguments(const Config& config, const RunArguments& arguments) {
  if (arguments.simulated && !arguments.site.empty()) {
    throw ConfigError(fmt::format(
        "site \"{}\" of a simulated run: a simulation has all sites in one process; leave the name "
        "of the site out",
        arguments.site));
  }
  if (arguments.simulated && !declares_step_time(config)) {
    throw ConfigError(
        "sim.step_time is missing: a simulated run of this trainer needs the length of an inner "
        "step");
  }
  if (!arguments.changes.empty() && arguments.resume == "never") {
    throw ConfigError(fmt::format(
        "change of {} without resume: it changes a run that goes on; for a new run give it among "
        "the overrides",
        arguments.changes.front().key));
  }
  const bool resumes_alone = arguments.resume == "never" || arguments.resume == "auto";
  if (!arguments.site.empty() && !resumes_alone) {
    throw ConfigError(fmt::format(
        "resume = \"{}\" at a site: sites go on from the newest checkpoint that all of them have; "
        "give \"auto\"",
        arguments.resume));
  }
  if (config.net.transport == "mpi") {
    throw ConfigError(
        "net.transport = \"mpi\": sites of a trainer of your own are joined over TCP; leave the "
        "key "
        "out");
  }
  if (!config.hub.site.empty() && config.hub.site == arguments.site) {
    throw ConfigError(fmt::format(
        "hub.site = \"{}\": only the program's own sites can be the hub as well; start `isthmus "
        "hub` beside the sites",
        config.hub.site));
  }
}

/// The worker's trainer, once it has proved to be the announced one.
std::unique_ptr<Trainer> checked(std::unique_ptr<Trainer> trainer, const TrainerFacts& facts,
                                 int worker) {
  if (trainer == nullptr) throw ConfigError("the trainer factory has made no trainer");
  const std::span<const Parameter> parameters = trainer->loop().parameters();
  if (digest_of_layout(parameters) != digest_of_layout(facts.parameters)) {
    throw ConfigError(fmt::format(
        "worker {}: the trainer's parameters are not those of its facts: {}; give every worker the "
        "same names and shapes in the same order",
        worker, first_unlike_parameter(parameters, facts.parameters)));
  }
  const std::int64_t parts = trainer->evaluation_parts().value_or(0);
  if (facts.evaluation_parts != 0 && parts != facts.evaluation_parts) {
    throw ConfigError(fmt::format(
        "worker {}: Trainer::evaluation_parts() = {}, and TrainerFacts::evaluation_parts = {}: "
        "give both the same number",
        worker, parts, facts.evaluation_parts));
  }
  for (const Parameter& each : parameters) {
    if (std::ssize(each.values) == each.elements.size()) continue;
    throw ConfigError(fmt::format("parameter '{}' of the trainer: {} values for {} elements",
                                  each.name, each.values.size(), each.elements.size()));
  }
  return trainer;
}

RunChanges changes_of(const RunArguments& arguments, const std::filesystem::path& out) {
  RunChanges changes{.before = {},
                     .by_argument = true,
                     .check = [](const Config& from, const Config& to, std::int64_t steps) {
                       check_change(from, to, steps, {.by_argument = true});
                     }};
  for (const RunChange& change : arguments.changes) {
    changes.keys.push_back(change.key);
    if (!change.before) continue;
    Config before = *change.before;
    if (changes.before.empty()) {
      before = as_begun(SystemStorage(), std::move(before), out, arguments.resume);
    } else {
      end_as(changes.before.front(), before);
    }
    changes.before.push_back(std::move(before));
  }
  return changes;
}

void tell(RunListener* listener, const std::string& text) {
  if (listener != nullptr) {
    listener->waiting(text);
  } else {
    log_info("{}", text);
  }
}

/// One session of the run; a site that comes back has several.
class CallersRun final : public RunObserver {
 public:
  struct Parts {
    const Config& config;
    const RunPlan& plan;
    const RunArguments& arguments;
    const RunChanges& changes;
    const TrainerFacts& facts;
    const TrainerFactory& make;
    Wishes& wishes;
    RunListener* listener;
    const std::vector<std::string>& warnings;  // said once, when the run begins
  };
  CallersRun(const Parts& parts, SessionTry& attempt)
      : parts_(parts), first_(attempt.directory.empty()), run_(options(parts, attempt)) {}

  RunOutcome run() {
    run_.check_force();
    run_.take_facts(parts_.facts);
    return run_.run(
        [this](const WorkerContext& context, EventSink*) {
          return checked(parts_.make(context), parts_.facts, context.rank.value());
        },
        *this);
  }

  [[nodiscard]] ProgressView* progress() override { return nullptr; }
  [[nodiscard]] StatusBoard* status() override { return nullptr; }
  void waiting(const std::string& what) override {
    tell(parts_.listener, fmt::format("waiting for the other sites: {}", what));
  }
  void begun(const RunDirectory&, const Manifest&, MetricsLog&) override {
    if (!first_) return;
    for (const std::string& each : parts_.warnings) log_warning("{}", each);
  }
  [[nodiscard]] Duration measure_step() override { return Duration{0}; }
  void finished(RunDirectory& directory, const RunOutcome& outcome, const RunWorld& world,
                const WorldResult& result) override {
    JsonLine line =
        outcome_summary(outcome, parts_.facts.values(),
                        world.simulated ? std::optional(outcome.totals.clock_s) : std::nullopt);
    add_world(line, outcome, result);
    directory.write_json("summary.json", line.str());
    directory.write_json("links.json", links_json(directory, parts_.config));
  }
  void ending() override {}

 private:
  static SessionOptions options(const Parts& parts, SessionTry& attempt) {
    const RunArguments& arguments = parts.arguments;
    const bool first = attempt.directory.empty();
    const std::filesystem::path& out = arguments.out.empty() ? parts.config.run.out : arguments.out;
    SessionOptions options{.config = parts.config,
                           .plan = parts.plan,
                           .wishes = parts.wishes,
                           .command = arguments.simulated ? "simulate" : "train",
                           .argv = arguments.argv,
                           .out = first ? out : attempt.directory,
                           .resume = first ? arguments.resume : "auto",
                           .force = first && arguments.force,
                           .simulated = arguments.simulated,
                           .site = own_site(arguments),
                           .pending_delta = &attempt.pending_delta,
                           .lock = &attempt.lock,
                           .changes = parts.changes};
    if (arguments.simulated) {
      options.byte_scale = surrogate_byte_scale(parts.config, parts.facts.values());
    }
    if (RunListener* const listener = parts.listener; listener != nullptr) {
      options.on_step = [listener](std::int64_t t) { listener->step(StepIndex(t)); };
    }
    return options;
  }

  const Parts parts_;
  const bool first_;  // of the run's sessions
  RunSession run_;
};

}  // namespace
}  // namespace app

namespace {

Config load_with(const std::filesystem::path& file, const Overrides& overrides) {
  return load_config(file, overrides,
                     {.methods = methods(),
                      .codecs = codecs(),
                      .check_codec =
                          [](const std::string& spelling) {
                            [[maybe_unused]] const auto codec = make_codec(spelling);
                          },
                      .read_model = {}});
}

Overrides named(const std::vector<std::string>& overrides, std::span<const std::string> changes) {
  Overrides all;
  for (const std::string& each : overrides) all.add({.text = each, .flag = "overrides"});
  for (const std::string& each : changes) {
    all.add({.text = each, .flag = app::change_flag(true)});
  }
  return all;
}

/// The count covers the parameters and the outer state: the memory of the caller's optimizer is not
/// known.
void check_room(const Config& config, const app::RunPlan& plan, const RunArguments& arguments,
                const TrainerFacts& facts) {
  const std::optional<WorkerId> own = app::own_worker(config, app::own_site(arguments));
  const std::filesystem::path& out = arguments.out.empty() ? config.run.out : arguments.out;
  const app::CheckpointRoom room = app::checkpoint_room(
      SystemStorage(), config, plan, app::checkpoint_bytes(config, plan, facts.values(), 0, own),
      {.out = out,
       .only = own,
       .goes_on = arguments.resume == "auto",
       .lays_down_start = app::lays_down_start(config) &&
                          (arguments.resume == "auto" || arguments.resume == "never")});
  app::check_checkpoint_room(room, config, out, true);
}

}  // namespace

Config load_run(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  return load_with(file, named(overrides, {}));
}

ChangedRun load_changed_run(const std::filesystem::path& file,
                            const std::vector<std::string>& overrides,
                            const std::vector<std::string>& changes) {
  const std::span<const std::string> all = changes;
  ChangedRun run{.config = load_with(file, named(overrides, all)), .changes = {}};
  for (std::size_t count = 0; count < all.size(); ++count) {
    RunChange& change = run.changes.emplace_back();
    change.key = changes[count].substr(0, changes[count].find('='));
    try {
      change.before = load_with(file, named(overrides, all.first(count)));
    } catch (const ConfigError&) {
      if (count == 0) throw;  // some changes fit together only, and no run was under half of them
    }
  }
  return run;
}

RunEnd run_session(const Config& given, const RunArguments& arguments, const TrainerFacts& facts,
                   const TrainerFactory& make, Wishes& wishes, RunListener* listener) {
  app::check_arguments(given, arguments);
  app::check_facts(facts);
  const std::filesystem::path& out = arguments.out.empty() ? given.run.out : arguments.out;
  const app::RunChanges changes = app::changes_of(arguments, out);
  Config config = given;
  if (changes.before.empty()) {
    config = app::as_begun(SystemStorage(), given, out, arguments.resume);
  } else {
    app::end_as(changes.before.front(), config);
  }
  for (const Config& before : changes.before) config.outer.former_H.push_back(before.outer.H);
  const std::optional<app::SiteArguments> site = app::own_site(arguments);
  app::check_run(config, {.simulated = arguments.simulated, .site = site});
  const app::RunPlan plan = app::make_run_plan(config, app::own_worker(config, site));
  check_room(config, plan, arguments, facts);
  const std::vector<std::string> warnings =
      app::warnings_about_end(config, app::run_end_of(config, facts.parameters));
  if (site) app::use_invitation(config, *site, "", wishes);
  const app::CallersRun::Parts parts{.config = config,
                                     .plan = plan,
                                     .arguments = arguments,
                                     .changes = changes,
                                     .facts = facts,
                                     .make = make,
                                     .wishes = wishes,
                                     .listener = listener,
                                     .warnings = warnings};
  app::RunOutcome outcome;
  const auto say = [&](const std::string& text) { app::tell(listener, text); };
  app::train_and_come_back(config.net.gather, wishes, say, [&](app::SessionTry& attempt) {
    outcome = app::CallersRun(parts, attempt).run();
  });
  return {.exit_code = outcome.exit_code,
          .status = outcome.status,
          .directory = outcome.directory,
          .steps = outcome.totals.steps,
          .clock_s = outcome.totals.clock_s};
}

}  // namespace isthmus
