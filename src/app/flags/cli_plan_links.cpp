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
  command
      .add_option(
          "--ranks", mesh.ranks,
          "of a site: its fastest mesh, whose step time is taken where --step-time is absent")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65'536}))
      ->type_name("N");
  command.add_option("--nodes", mesh.nodes, "machines of a site (default 1)")->type_name("N");
  command
      .add_option("--model", mesh.model,
                  "its shape, as `plan mesh` has it (default: a llama of --params)")
      ->type_name("MODEL");
  command.add_option("--context", mesh.context, "tokens of a sample (default 4096)")
      ->type_name("T");
  command.add_option("--batch", mesh.batch, "tokens of a site in a step (default 4Mi tok)")
      ->type_name("TOKENS");
  command.add_option("--memory", mesh.memory, "of a rank: 80GB")->type_name("BYTES");
  command.add_option("--compute", mesh.compute, "what a rank really computes (default 400TFLOP/s)")
      ->type_name("RATE");
}

}  // namespace

void add_plan_sync_command(CLI::App& plan, Parsed& parsed) {
  CLI::App* command = subcommand(plan, "sync", "what one synchronization takes on given links");
  command->footer(std::string(kSyncHelp));
  const auto kept = std::make_shared<PlanSyncArguments>();  // by the flags' action too
  PlanSyncArguments& arguments = *kept;
  command->add_option("--params", arguments.params, "values of the vector: 30.8M, 1B")
      ->type_name("N");
  command->add_option("--codec", arguments.codec, "of a value on the wire (default fp32)")
      ->type_name("NAME");
  command
      ->add_option("--way", arguments.way,
                   "ring (default: 2 (M - 1) hops, as NCCL) or reduce (as runs exchange)")
      ->type_name("NAME");
  command->add_option("--sites", arguments.sites, "members, all links alike (default 2)")
      ->type_name("M");
  command->add_option("--rate", arguments.rate, "of each link: 200Mbit/s")->type_name("RATE");
  command->add_option("--rtt", arguments.rtt, "its round trip (default: none)")->type_name("TIME");
  command->add_option("--links", arguments.links, "the links of a file in the place of these three")
      ->type_name("FILE");
  command
      ->add_option("--link-model", arguments.link_model,
                   "ideal (default): bytes by rate; goodput: what TCP leaves of it")
      ->type_name("NAME");
  command
      ->add_option("--link-share", arguments.link_share,
                   "of each rate that frames get, where something else takes the rest (default 1)")
      ->type_name("SHARE");
  command
      ->add_option("--processor", arguments.processor,
                   "with --way reduce: fp32 values that a site's processor exchanges in a second, "
                   "in bits: 5Gbit/s, as `doctor` says (default: any number)")
      ->type_name("RATE");
  command
      ->add_option("--step-time", arguments.step_time,
                   "computing of a step, of a run that stops for each sync")
      ->type_name("TIME");
  command->add_option("--H", arguments.H, "steps between its syncs (default 1)")->type_name("N");
  command->add_option("--steps", arguments.steps, "of the run (default H)")->type_name("N");
  command->add_option("--skip", arguments.skip, "of those, the first that do not count (default 0)")
      ->type_name("N");
  command->callback([&parsed, kept] {
    parsed.action = [kept](Session& session) { return command_plan_sync(*kept, session); };
  });
}

void add_plan_choose_command(CLI::App& plan, Parsed& parsed) {
  CLI::App* command =
      subcommand(plan, "choose", "which method, H, codec and mesh for these links, and why");
  command->footer(std::string(kChooseHelp));
  const auto kept = std::make_shared<PlanChooseArguments>();  // by the flags' action too
  PlanChooseArguments& arguments = *kept;
  command->add_option("--links", arguments.links, "a links file, as `bench link` writes it")
      ->type_name("FILE");
  command->add_option("--sites", arguments.sites, "of those in it (default: all)")
      ->delimiter(',')
      ->type_name("NAME,...");
  command->add_option("--params", arguments.params, "parameters of the model: 1B, 350M")
      ->type_name("N");
  command
      ->add_option("--layers", arguments.layers,
                   "its layers (default: as models of that size have)")
      ->type_name("L");
  command->add_option("--step-time", arguments.step_time, "computing of an inner step: 1s")
      ->type_name("TIME");
  command
      ->add_option("--computing", arguments.computing,
                   "the least share of its time that a site is to compute (default 0.9)")
      ->type_name("SHARE");
  command->add_option("--steps", arguments.steps, "of the run: its time too")->type_name("N");
  command
      ->add_option("--link-model", arguments.link_model,
                   "goodput (default): what TCP leaves of a rate; ideal: bytes by rate")
      ->type_name("NAME");
  command
      ->add_option("--processor", arguments.processor,
                   "fp32 values that a site's processor exchanges in a second, in bits: 5Gbit/s, "
                   "as `doctor` says (default: any number)")
      ->type_name("RATE");
  add_site_mesh_flags(*command, arguments.mesh);
  command
      ->add_option("--after", arguments.after,
                   "a run that has ended: how far off the prediction was for it")
      ->type_name("RUN");
  command->callback([&parsed, kept] {
    parsed.action = [kept](Session& session) { return command_plan_choose(*kept, session); };
  });
}

}  // namespace isthmus::app
