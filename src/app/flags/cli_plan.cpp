// SPDX-License-Identifier: Apache-2.0
// Flags of `plan`.
#include <memory>

#include "app/commands/plan/link_plans.h"
#include "app/flags/cli_parser.h"
#include "app/flags/cli_plan_links.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kUtilisationHelp =
    "How fast the link between two sites has to be for 50, 80, 90, 95 and 99 % of the time to be\n"
    "spent computing, by method and model; nothing runs. The event graph and the reporting rule "
    "are\n"
    "those of Streaming DiLoCo's Table 4 (arXiv:2501.18512). Latency is none unless given.\n\n"
    "  isthmus plan utilisation --params 1B --layers 24 --step-time 100ms\n"
    "  isthmus plan utilisation --params 10B --layers 48 --step-time 800ms --method diloco --H 50\n"
    "  isthmus plan utilisation --params 1B --layers 24 --step-time 100ms --bandwidth 1Gbit/s \\\n"
    "    --method ddp --method streaming-diloco:overlap=1,bits=4\n"
    "  isthmus plan utilisation run.toml --params 1B --step-time 100ms";

void add_utilisation_command(CLI::App& plan, Parsed& parsed) {
  CLI::App* command =
      subcommand(plan, "utilisation", "how fast a link each method needs", kUtilisationHelp);
  PlanUtilisationArguments& arguments = parsed.plan_utilisation;
  option(*command, "CONFIG", "", arguments.config,
         "a run: its method, fragments, offsets, codec, layers and surrogate");
  repeated(*command, "--set", "KEY=VALUE", arguments.overrides, "override a key of CONFIG");
  option(*command, "--params", "N", arguments.params, "parameters of the model: 1B, 350M");
  option(*command, "--layers", "L", arguments.layers, "its layers");
  option(*command, "--step-time", "TIME", arguments.step_time, "computing of an inner step: 100ms");
  repeated(*command, "--method", "NAME[:SETTING=VALUE,...]", arguments.methods,
           "a method of `isthmus methods`, with settings, as streaming-diloco:overlap=1; "
           "may be given several times (default: the published table's rows and more)");
  UtilisationChoice& common = arguments.common;
  option(*command, "--H", "N", common.H, "inner steps between syncs (default 100)");
  option(*command, "--fragment-layers", "N", common.fragment_layers,
         "layers of a fragment (default 3, or 2 or 1 where 3 does not divide them)");
  command
      ->add_option_function<std::string>(
          "--pattern",
          [&common](const std::string& word) {
            common.pattern = parse_utilisation_choice("streaming-diloco:pattern=" + word).pattern;
          },
          "which layers make a fragment: strided (default), sequential, balanced")
      ->check(CLI::IsMember({"strided", "sequential", "balanced"}))
      ->type_name("NAME");
  option(*command, "--overlap", "N", common.overlap,
         "inner steps that hide a fragment's exchange (default 0)");
  option(*command, "--bits", "N", common.bits, "of a value on the wire (default 16)");
  command->add_flag_callback(
      "--embedding-turn", [&common] { common.embedding_turn = true; },
      "an empty turn after those of the fragments, as for embeddings of their own");
  option(*command, "--bandwidth", "RATE", arguments.bandwidth,
         "say the utilisation on this link too: 1Gbit/s");
  const auto latency = std::make_shared<std::string>();  // of this flag and of the action below
  option(*command, "--latency", "TIME", *latency,
         "of each reduction, after its last bit: 10ms (default: none, as the published "
         "tables)");
  option(*command, "--links", "FILE", parsed.plan_links_file,
         "... on the slowest link of a links file, as `bench link` writes it");
  set_action(*command, parsed, [&parsed, latency](Session& session) {
    return command_plan_utilisation(parsed.plan_utilisation, parsed.plan_links_file, *latency,
                                    session);
  });
}

}  // namespace

void add_plan_command(CLI::App& app, Parsed& parsed) {
  CLI::App* plan = subcommand(app, "plan", "what a run would need, before it runs");
  plan->require_subcommand(1);
  add_plan_choose_command(*plan, parsed);
  add_plan_mesh_command(*plan, parsed);
  add_plan_pipeline_command(*plan, parsed);
  add_plan_sync_command(*plan, parsed);
  add_utilisation_command(*plan, parsed);
}

}  // namespace isthmus::app
