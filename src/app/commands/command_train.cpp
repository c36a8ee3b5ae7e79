// SPDX-License-Identifier: Apache-2.0
// `train` and `simulate`: one file, real threads or virtual time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "app/commands/bench/link_commands.h"
#include "app/commands/links_flag.h"
#include "app/common/commands.h"
#include "app/common/launch_environment.h"
#include "app/common/signals.h"
#include "app/train/change_check.h"
#include "app/train/checkpoint_room.h"
#include "app/train/mesh_job.h"
#include "app/train/model_steps.h"
#include "app/train/run_estimate.h"
#include "app/train/run_summary.h"
#include "app/train/training.h"
#include "config/links_file.h"
#include "core/base/fault_point.h"
#include "core/base/log.h"
#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "record/run_lock.h"
#include "session/come_back.h"
#include "session/hub/site_hub.h"
#include "session/run/begun_run.h"
#include "session/run/resume.h"
#include "session/run_checks.h"
#include "session/site/site_enrolment.h"
#include "session/site/site_links.h"
#include "session/site/site_recording.h"
#include "session/site/site_start.h"
#include "transport/collectives/mpi_communicator.h"
#include "transport/links/mpi_transport.h"
#include "transport/links/network_transport.h"

namespace isthmus::app {
namespace {

std::int64_t ranks_of(const SiteConfig& site) { return std::int64_t{site.tp} * site.pp * site.dp; }

/// The worker whose mesh's ranks are the processes of this MPI job: the site that `--site` names,
/// or the only site. Nothing: the processes are the workers.
std::optional<WorkerId> mesh_of_job(const Config& config, const TrainArguments& arguments) {
  std::size_t index = 0;
  if (!arguments.site.name.empty()) {
    const auto named = std::ranges::find(config.sites, arguments.site.name, &SiteConfig::name);
    if (named == config.sites.end()) return std::nullopt;  // refused by name further on
    index = static_cast<std::size_t>(named - config.sites.begin());
  } else if (config.workers() > 1) {
    return std::nullopt;
  }
  const std::int64_t ranks = ranks_of(config.sites[index]);
  if (ranks == 1) return std::nullopt;
  if (const int members = mpi_place().members; members != ranks) {
    throw ConfigError(
        fmt::format("{} processes in this MPI job and {} ranks in the mesh of site {}: start as "
                    "many as tp x pp x dp (mpirun -n {}), or change [parallel]",
                    members, ranks, config.sites[index].name, ranks));
  }
  return WorkerId(static_cast<int>(index));
}

/// All ranks of all sites' meshes.
std::int64_t all_ranks(const Config& config) {
  std::int64_t ranks = 0;
  for (const SiteConfig& site : config.sites) ranks += ranks_of(site);
  return ranks;
}

/// The worker that this process of an MPI job is, in rank order, or belongs to as a rank: sites one
/// after another as in the file, each with as many processes as ranks.
WorkerId worker_of_job(const Config& config, const std::filesystem::path& file) {
  const MpiPlace place = mpi_place();
  if (place.members == config.workers()) return place.self;
  const std::int64_t ranks = all_ranks(config);
  if (place.members != ranks) {
    const std::string or_ranks =
        ranks == config.workers()
            ? ""
            : fmt::format(", or as all their meshes have ranks (-n {})", ranks);
    throw ConfigError(fmt::format(
        "{} processes in this MPI job and {} workers in {}: start as many as there are workers "
        "(mpirun -n {}){}, or set run.workers",
        place.members, config.workers(), file.string(), config.workers(), or_ranks));
  }
  std::int64_t end = 0;
  int worker = 0;
  while ((end += ranks_of(config.sites[static_cast<std::size_t>(worker)])) <= place.self.value()) {
    ++worker;
  }
  return WorkerId(worker);
}

/// Sites that were started together on this machine write into folders below `out`, on one disk as
/// it may be, and each alone may fit where all of them do not.
void check_disk_of_all(const Config& config, const TrainArguments& arguments,
                       const std::filesystem::path& out) {
  const std::optional<LaunchEnvironment> found = find_launch_environment(environment());
  if (!found || !found->here || found->here != found->size) return;
  std::vector<WorkerId> sites;
  for (int i = 0; i < config.workers(); ++i) sites.emplace_back(i);
  check_room_of_sites(SystemStorage(), config, sites, out, arguments.resume != "never");
}

/// This process is `worker` of an MPI job, or one of its ranks; each worker writes into a separate
/// folder.
void join_mpi_job(const Config& config, WorkerId worker, TrainArguments& arguments) {
  arguments.site.mpi = true;
  arguments.site.name = config.sites[static_cast<std::size_t>(worker.value())].name;
  const std::filesystem::path out = arguments.out.empty() ? config.run.out : arguments.out;
  if (out.empty() && config.workers() > 1) {
    throw ConfigError(
        "under MPI every process writes into a folder below one that all know: give --out DIR or "
        "run.out");
  }
  if (config.workers() > 1) check_disk_of_all(config, arguments, out);
  arguments.out = out / arguments.site.name;
}

/// `--site auto`: the site of the process's rank; each site then has a separate folder.
void find_own_site(const Config& config, TrainArguments& arguments) {
  const bool is_a_name =
      std::ranges::find(config.sites, "auto", &SiteConfig::name) != config.sites.end();
  if (arguments.site.name != "auto" || is_a_name) {
    return;
  }
  arguments.site.name = site_of_environment(config, environment());
  const std::filesystem::path out = arguments.out.empty() ? config.run.out : arguments.out;
  if (out.empty()) return;
  check_disk_of_all(config, arguments, out);
  arguments.out = out / arguments.site.name;
}

std::optional<SiteArguments> site_of(const TrainArguments& arguments) {
  if (arguments.site.name.empty()) {
    return std::nullopt;
  }
  if (arguments.resume != "never" && arguments.resume != "auto") {
    throw UsageError(fmt::format(
        "--resume {} together with --site: sites go on from the newest checkpoint that all of them "
        "have; give --resume alone",
        arguments.resume));
  }
  return arguments.site;
}

/// For tests: core/base/fault_point.h.
void arm_by_environment() {
  const std::optional<std::string> fault = environment()("ISTHMUS_FAULT");
  if (!fault || fault->empty()) return;
  arm(parse_fault(*fault));
  log_warning("ISTHMUS_FAULT = {}: this process will be killed there", *fault);
}

/// An addition to the message that the folder is in use: often a twin of this process uses it. An
/// "if", since a batch script's own process has the variables of its tasks.
std::string remedy_for_twins(const Config& config, const TrainArguments& arguments) {
  if (!arguments.site.name.empty()) return "";
  try {
    const std::optional<LaunchEnvironment> found = find_launch_environment(environment());
    if (!found || found->size.value_or(1) == 1) return "";
    return fmt::format(
        "; if {} has started {} processes of this command, {}", found->by, *found->size,
        config.workers() > 1 ? "give --site auto: each of them is one site" : "start one");
  } catch (const ConfigError&) {  // of --site auto, which the user did not ask for
    return "";
  }
}

/// A site that the others have lost, or that has lost the first, comes back as often as it is let.
TrainingOutcome train_returning(const Config& config, TrainingRequest request, Session& session) {
  arm_by_environment();
  TrainingOutcome outcome;
  const auto say = [&](const std::string& text) { session.err.write("isthmus: " + text + "\n"); };
  train_and_come_back(config.net.gather, SignalScope::wishes(), say, [&](SessionTry& attempt) {
    request.pending_delta = &attempt.pending_delta;
    request.lock = &attempt.lock;
    if (!attempt.directory.empty()) {
      request.out = attempt.directory;
      request.resume = "auto";
      request.force = false;
    }
    outcome = run_training(config, request, session);
  });
  return outcome;
}

/// Whether this process is the file's hub beside its site.
bool is_hub_too(const Config& config, const TrainArguments& arguments) {
  return !config.hub.site.empty() && config.hub.site == arguments.site.name && !arguments.site.mpi;
}

/// The error that ended the hub for good is the reason why its site cannot continue.
TrainingOutcome train_beside(SiteHub& hub, const std::function<TrainingOutcome()>& train) {
  try {
    return train();
  } catch (const PeerError&) {
    hub.check();
    throw;
  }
}

/// Of a process that is one site.
struct OneSite {
  RankProcesses* mesh = nullptr;      // those of its mesh
  std::filesystem::path record = {};  // --record
};

RunChanges changes_of(const TrainArguments& arguments, const std::filesystem::path& out) {
  RunChanges changes{.before = {}, .check = check_change};
  for (std::size_t count = 0; count < arguments.changes.size(); ++count) {
    changes.keys.push_back(arguments.changes[count].substr(0, arguments.changes[count].find('=')));
    try {
      Config before = load_changed(arguments, count);
      if (count == 0) {
        before = as_begun(SystemStorage(), std::move(before), out, arguments.resume);
      } else {
        end_as(changes.before.front(), before);
      }
      changes.before.push_back(std::move(before));
    } catch (const ConfigError&) {
      if (count == 0) throw;  // some changes fit together only, and no run was under half of them
    }
  }
  return changes;
}

std::string change_flags(const TrainArguments& arguments) {
  std::string text;
  for (const std::string& each : arguments.changes) text += " --change '" + each + "'";
  return text;
}

/// Checks of a site's links that open no connection: addresses, keys, limits, the hub's.
void check_links_of(const Config& config, const SiteArguments& site) {
  MemberOptions options = link_options(config, site, app::site_of(config, site));
  if (has_hub(config, site)) add_hub(config, options);
  check_options(options);
}

int run(const Config& given, const TrainArguments& arguments, bool simulated, Session& session,
        bool emulated = false, const OneSite& site_process = {}) {
  const std::filesystem::path folder = arguments.out.empty() ? given.run.out : arguments.out;
  const RunChanges changes = changes_of(arguments, folder);
  Config config = given;
  if (changes.before.empty()) {
    config = as_begun(SystemStorage(), given, folder, arguments.resume);
  } else {
    end_as(changes.before.front(), config);
  }
  for (const Config& before : changes.before) config.outer.former_H.push_back(before.outer.H);
  if (arguments.dry_run) {
    const std::optional<SiteArguments> site = site_of(arguments);
    check_run(config, {.simulated = simulated, .emulated = emulated, .site = site});
    const std::filesystem::path out = arguments.out.empty() ? config.run.out : arguments.out;
    const RunEstimate estimate =
        estimate_run(config, simulated,
                     {.only = site ? std::optional(app::site_of(config, *site)) : std::nullopt,
                      .out = out,
                      .begun_with = data_begun_with(SystemStorage(), out, arguments.resume),
                      .resume = arguments.resume,
                      .changes = changes});
    session.out.write(session.json ? estimate_json(estimate) + "\n"
                                   : render_estimate(config, estimate));
    return 0;
  }
  if (arguments.site.name.empty() && !arguments.site.mpi && !folder.empty()) {
    for (const SiteConfig& site : config.sites) check_nobody_writes(folder / site.name);
  }
  std::optional<SiteHub> hub;  // for all sessions of the site, and the work after them
  if (is_hub_too(config, arguments)) {
    const std::filesystem::path out = arguments.out.empty() ? config.run.out : arguments.out;
    hub.emplace(config, site_hub_folder(config, out),
                arguments.resume != "never" ? SiteHub::Former::kResumed
                : arguments.force           ? SiteHub::Former::kForgotten
                                            : SiteHub::Former::kRefused,
                SignalScope::wishes());
  }
  std::optional<SiteRecording> recording;  // of all its sessions
  if (!site_process.record.empty()) recording.emplace(site_process.record);
  const auto train = [&] {
    return train_returning(config,
                           {.command = simulated || emulated ? "simulate" : "train",
                            .out = arguments.out,
                            .resume = arguments.resume,
                            .force = arguments.force,
                            .simulated = simulated,
                            .emulated = emulated,
                            .site = site_of(arguments),
                            .recording = recording ? &*recording : nullptr,
                            .mesh = site_process.mesh,
                            .lock_remedy = remedy_for_twins(config, arguments),
                            .changes = changes},
                           session);
  };
  const TrainingOutcome outcome = hub ? train_beside(*hub, train) : train();
  session.saved = fmt::format("the run itself ended in order and is saved in '{}' (summary.json)",
                              outcome.directory.string());
  if (session.json) {
    session.out.write(outcome_json(outcome) + "\n");
  } else if (!session.quiet) {
    session.out.write(render_outcome(config, outcome));
    if (outcome.prediction && !arguments.site.name.empty()) {
      session.out.write("\nover the links that the file declares:");
    }
    session.out.write(render_outcome_prediction(outcome));
  }
  if (outcome.exit_code != ExitCode::kOk) {
    const std::string missing = unapplied_text_at(config, outcome.totals.steps);
    if (!missing.empty()) session.err.write("of the checkpoint's model: " + missing + "\n");
    session.err.write(fmt::format(
        "stopped after step {}, checkpoint written; go on with --out {} "
        "--resume auto{}{}\n",
        outcome.totals.steps,
        (arguments.site.mpi ? outcome.directory.parent_path() : outcome.directory).string(),
        arguments.site.name.empty() || arguments.site.mpi ? "" : " --site " + arguments.site.name,
        change_flags(arguments)));
  }
  ExitCode code = outcome.exit_code;
  if (hub) {
    const SignalScope signals;
    const ExitCode hubs = hub->serve_to_the_end(arguments.site.name);
    if (hubs != ExitCode::kOk) {
      session.err.write(
          "isthmus: the hub has been stopped before all sites had left; they wait for it: start "
          "this site again with --resume auto\n");
    }
    if (code == ExitCode::kOk) code = hubs;
  }
  return static_cast<int>(code);
}

/// In a job of all ranks of all sites.
int run_as_rank_of(const Config& config, WorkerId worker, const TrainArguments& arguments,
                   Session& session) {
  split_mpi_job(worker.value());
  if (ranks_of(config.sites[static_cast<std::size_t>(worker.value())]) > 1) {
    return run_mesh_job(config, worker, [&](RankProcesses& ranks) {
      return run(config, arguments, false, session, false, {.mesh = &ranks});
    });
  }
  const int code = run(config, arguments, false, session);
  finish_mpi();
  return code;
}

}  // namespace

std::vector<std::string> set_texts(const TrainArguments& arguments) {
  std::vector<std::string> texts = arguments.overrides;
  for (const Override& each : arguments.from_flags) texts.push_back(each.text);
  return texts;
}

Config load_changed(const TrainArguments& arguments, std::size_t count) {
  if (!arguments.changes.empty() && arguments.resume == "never") {
    throw UsageError(fmt::format(
        "--change {} without --resume: it changes a run that goes on; of a new one it is --set",
        arguments.changes.front()));
  }
  Overrides overrides(arguments.overrides);
  for (const Override& each : arguments.from_flags) overrides.add(each);
  for (std::size_t i = 0; i < count; ++i) {
    overrides.add({.text = arguments.changes[i], .flag = "--change"});
  }
  return load_config(arguments.config, overrides, schema_context());
}

int command_train(const TrainArguments& given, const std::string& invitation,
                  const std::filesystem::path& links, const std::filesystem::path& record,
                  Session& session) {
  TrainArguments arguments = given;
  Config config = load_changed(arguments, arguments.changes.size());
  if (!links.empty()) use_links_file(config, links);
  set_addresses(config, arguments.site.addresses);
  find_own_site(config, arguments);
  const bool mpi =
      config.net.transport == "mpi" || (config.net.transport == "auto" && under_mpi(environment()));
  if ((mpi || under_mpi(environment())) && !arguments.dry_run) {
    if (const std::optional<WorkerId> worker = mesh_of_job(config, arguments)) {
      return run_mesh_job(config, *worker, [&](RankProcesses& ranks) {
        return run(config, arguments, false, session, false, {.mesh = &ranks, .record = record});
      });
    }
    if (mpi && arguments.site.name.empty()) {
      const WorkerId worker = worker_of_job(config, arguments.config);
      join_mpi_job(config, worker, arguments);
      if (mpi_place().members > config.workers()) {
        return run_as_rank_of(config, worker, arguments, session);
      }
    }
  }
  if (!arguments.dry_run) {
    const SignalScope signals;
    use_invitation(config, arguments.site, invitation, SignalScope::wishes());
  } else if (!arguments.site.name.empty() && !mpi && invitation.empty()) {
    check_links_of(config, arguments.site);
  }
  return run(config, arguments, false, session, false, {.record = record});
}

int command_simulate(const SimulateArguments& arguments, Session& session) {
  return command_simulate(arguments, {}, session);
}

int command_simulate(const SimulateArguments& arguments, const std::filesystem::path& links,
                     Session& session) {
  Config config = load_changed(arguments, arguments.changes.size());
  if (!arguments.links.empty() && !links.empty()) {
    throw UsageError("simulate: --link and --links say the same thing; give one of them");
  }
  if (!arguments.links.empty()) {
    replace_links(config, arguments.links, "--link");
  }
  if (!links.empty()) {
    use_links_file(config, links);
  }
  if (config.workers() > 1 && config.links.empty()) {
    throw ConfigError(
        fmt::format("{}: simulate needs a link between the {} workers: add [[link]] or give --link "
                    "100Mbit/s,80ms",
                    arguments.config.string(), config.workers()));
  }
  if (arguments.emulate && config.surrogate) {
    throw ConfigError(fmt::format(
        "{}: [surrogate] together with --emulate: real sockets carry the bytes of the model that "
        "learns, not of a declared one; leave [surrogate] out",
        arguments.config.string()));
  }
  return run(config, arguments, !arguments.emulate, session, arguments.emulate);
}

}  // namespace isthmus::app
