// SPDX-License-Identifier: Apache-2.0
// Flags of `plan`.
#include "app/flags/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kUtilisationHelp =
    "How fast the link between two sites has to be for 50, 80, 90, 95 and 99 % of the time to be\n"
    "spent computing, by method and model; nothing runs. The event graph and the reporting rule "
    "are\n"
    "those of Streaming DiLoCo's Table 4 (arXiv:2501.18512). Latency is left out.\n\n"
    "  isthmus plan utilisation --params 1B --layers 24 --step-time 100ms\n"
    "  isthmus plan utilisation --params 10B --layers 48 --step-time 800ms --method diloco --H 50\n"
    "  isthmus plan utilisation --params 1B --layers 24 --step-time 100ms --bandwidth 1Gbit/s \\\n"
    "    --method ddp --method streaming-diloco:overlap=1,bits=4\n"
    "  isthmus plan utilisation run.toml --params 1B --step-time 100ms";

void add_utilisation_command(CLI::App& plan, Parsed& parsed) {
  CLI::App* command = subcommand(plan, "utilisation", "how fast a link each method needs");
  command->footer(std::string(kUtilisationHelp));
  PlanUtilisationArguments& arguments = parsed.plan_utilisation;
  command
      ->add_option("CONFIG", arguments.config,
                   "a run: its method, fragments, offsets, codec, layers and surrogate")
      ->type_name("");
  repeated(*command, "--set", arguments.overrides, "override a key of CONFIG")
      ->type_name("KEY=VALUE");
  command->add_option("--params", arguments.params, "parameters of the model: 1B, 350M")
      ->type_name("N");
  command->add_option("--layers", arguments.layers, "its layers")->type_name("L");
  command->add_option("--step-time", arguments.step_time, "computing of an inner step: 100ms")
      ->type_name("TIME");
  repeated(*command, "--method", arguments.methods,
           "a method of `isthmus methods`, with settings, as streaming-diloco:overlap=1; "
           "may be given several times (default: the published table's rows and more)")
      ->type_name("NAME[:SETTING=VALUE,...]");
  UtilisationChoice& common = arguments.common;
  command->add_option("--H", common.H, "inner steps between syncs (default 100)")->type_name("N");
  command
      ->add_option("--fragment-layers", common.fragment_layers,
                   "layers of a fragment (default 3, or 2 or 1 where 3 does not divide them)")
      ->type_name("N");
  command
      ->add_option_function<std::string>(
          "--pattern",
          [&common](const std::string& word) {
            common.pattern = parse_utilisation_choice("streaming-diloco:pattern=" + word).pattern;
          },
          "which layers make a fragment: strided (default), sequential, balanced")
      ->check(CLI::IsMember({"strided", "sequential", "balanced"}))
      ->type_name("NAME");
  command
      ->add_option("--overlap", common.overlap,
                   "inner steps that hide a fragment's exchange (default 0)")
      ->type_name("N");
  command->add_option("--bits", common.bits, "of a value on the wire (default 16)")->type_name("N");
  command->add_flag_callback(
      "--embedding-turn", [&common] { common.embedding_turn = true; },
      "an empty turn after those of the fragments, as for embeddings of their own");
  command
      ->add_option("--bandwidth", arguments.bandwidth,
                   "say the utilisation on this link too: 1Gbit/s")
      ->type_name("RATE");
  command
      ->add_option("--links", parsed.plan_links_file,
                   "... on the slowest link of a links file, as `bench link` writes it")
      ->type_name("FILE");
  command->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_plan_utilisation(parsed.plan_utilisation, parsed.plan_links_file, session);
    };
  });
}

}  // namespace

void add_plan_command(CLI::App& app, Parsed& parsed) {
  CLI::App* plan = subcommand(app, "plan", "what a run would need, before it runs");
  plan->require_subcommand(1);
  add_plan_mesh_command(*plan, parsed);
  add_plan_pipeline_command(*plan, parsed);
  add_utilisation_command(*plan, parsed);
}

}  // namespace isthmus::app
