// SPDX-License-Identifier: Apache-2.0
// Flags of `plan sync` and `plan choose`.
#include "app/flags/cli_plan_links.h"

#include <memory>

#include "app/commands/plan/link_plans.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kSyncHelp =
    "What one synchronization of a vector takes on given links, by the model behind a run's\n"
    "prediction, and the share of computing that it leaves a run that stops for it. A ring is "
    "what\n"
    "NCCL does. Nothing runs.\n\n"
    "  isthmus plan sync --params 30.8M --sites 4 --rate 200Mbit/s\n"
    "  isthmus plan sync --params 1B --codec bf16 --links links.toml --way reduce\n"
    "  isthmus plan sync --params 30.8M --sites 4 --rate 1Gbit/s --step-time 25ms --H 32 --steps "
    "150";

constexpr std::string_view kChooseHelp =
    "Which method, H and codec for these links, with the predicted time and where its loss was "
    "measured;\n"
    "with --ranks the mesh of a site too. The mildest method that computes --computing of the time "
    "is\n"
    "chosen. --after RUN says how far off the prediction was for a run that has ended.\n\n"
    "  isthmus plan choose --links links.toml --params 1B --step-time 1s\n"
    "  isthmus plan choose --links links.toml --params 8B --ranks 64 --nodes 8 --memory 80GB \\\n"
    "    --batch \"4Mi tok\"\n"
    "  isthmus plan choose --links links.toml --params 1B --step-time 1s --after runs/wan";

void add_site_mesh_flags(CLI::App& command, PlanMeshArguments& mesh) {
  option(command, "--ranks", "N", mesh.ranks,
         "of a site: its fastest mesh, whose step time is taken where --step-time is absent")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65'536}));
  option(command, "--nodes", "N", mesh.nodes, "machines of a site (default 1)");
  option(command, "--model", "MODEL", mesh.model,
         "its shape, as `plan mesh` has it (default: a llama of --params)");
  option(command, "--context", "T", mesh.context, "tokens of a sample (default 4096)");
  option(command, "--batch", "TOKENS", mesh.batch, "tokens of a site in a step (default 4Mi tok)");
  option(command, "--memory", "BYTES", mesh.memory, "of a rank: 80GB");
  option(command, "--compute", "RATE", mesh.compute,
         "what a rank really computes (default 400TFLOP/s)");
}

}  // namespace

void add_plan_sync_command(CLI::App& plan, Parsed& parsed) {
  CLI::App* command =
      subcommand(plan, "sync", "what one synchronization takes on given links", kSyncHelp);
  const auto kept = std::make_shared<PlanSyncArguments>();  // by the flags' action too
  PlanSyncArguments& arguments = *kept;
  option(*command, "--params", "N", arguments.params, "values of the vector: 30.8M, 1B");
  option(*command, "--codec", "NAME", arguments.codec, "of a value on the wire (default fp32)");
  option(*command, "--way", "NAME", arguments.way,
         "ring (default: 2 (M - 1) hops, as NCCL) or reduce (as runs exchange)");
  option(*command, "--sites", "M", arguments.sites, "members, all links alike (default 2)");
  option(*command, "--rate", "RATE", arguments.rate, "of each link: 200Mbit/s");
  option(*command, "--rtt", "TIME", arguments.rtt, "its round trip (default: none)");
  option(*command, "--links", "FILE", arguments.links,
         "the links of a file in the place of these three");
  option(*command, "--link-model", "NAME", arguments.link_model,
         "ideal (default): bytes by rate; goodput: what TCP leaves of it");
  option(*command, "--link-share", "SHARE", arguments.link_share,
         "of each rate that frames get, where something else takes the rest (default 1)");
  option(*command, "--processor", "RATE", arguments.processor,
         "with --way reduce: fp32 values that a site's processor exchanges in a second, "
         "in bits: 5Gbit/s, as `doctor` says (default: any number)");
  option(*command, "--step-time", "TIME", arguments.step_time,
         "computing of a step, of a run that stops for each sync");
  option(*command, "--H", "N", arguments.H, "steps between its syncs (default 1)");
  option(*command, "--steps", "N", arguments.steps, "of the run (default H)");
  option(*command, "--skip", "N", arguments.skip,
         "of those, the first that do not count (default 0)");
  set_action(*command, parsed, command_plan_sync, kept);
}

void add_plan_choose_command(CLI::App& plan, Parsed& parsed) {
  CLI::App* command = subcommand(
      plan, "choose", "which method, H, codec and mesh for these links, and why", kChooseHelp);
  const auto kept = std::make_shared<PlanChooseArguments>();  // by the flags' action too
  PlanChooseArguments& arguments = *kept;
  option(*command, "--links", "FILE", arguments.links, "a links file, as `bench link` writes it");
  option(*command, "--sites", "NAME,...", arguments.sites, "of those in it (default: all)")
      ->delimiter(',');
  option(*command, "--params", "N", arguments.params, "parameters of the model: 1B, 350M");
  option(*command, "--layers", "L", arguments.layers,
         "its layers (default: as models of that size have)");
  option(*command, "--step-time", "TIME", arguments.step_time, "computing of an inner step: 1s");
  option(*command, "--computing", "SHARE", arguments.computing,
         "the least share of its time that a site is to compute (default 0.9)");
  option(*command, "--steps", "N", arguments.steps, "of the run: its time too");
  option(*command, "--link-model", "NAME", arguments.link_model,
         "goodput (default): what TCP leaves of a rate; ideal: bytes by rate");
  option(*command, "--processor", "RATE", arguments.processor,
         "fp32 values that a site's processor exchanges in a second, in bits: 5Gbit/s, "
         "as `doctor` says (default: any number)");
  add_site_mesh_flags(*command, arguments.mesh);
  option(*command, "--after", "RUN", arguments.after,
         "a run that has ended: how far off the prediction was for it");
  set_action(*command, parsed, command_plan_choose, kept);
}

}  // namespace isthmus::app
