// SPDX-License-Identifier: Apache-2.0
// Flags of `hub`.
#include "app/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kHelp =
    "With [hub] in the file, this process says who is there and which rounds are final, so that\n"
    "any site may die, the first too. It trains nothing and needs no data and no GPU. What it has\n"
    "decided is in DIR/hub.log; when it dies the sites go on training until a round needs it, and\n"
    "wait. Start it again by the same command:\n\n"
    "  isthmus hub run.toml --out runs/hub --resume auto";

}  // namespace

void add_hub_command(CLI::App& app, Parsed& parsed) {
  CLI::App* command = subcommand(app, "hub", "say which rounds of a run's sites are final");
  HubArguments& arguments = parsed.hub;
  command->footer(std::string(kHelp));
  command->add_option("CONFIG", arguments.config, "TOML file that describes the run")
      ->required()
      ->type_name("");
  repeated(*command, "--set", arguments.overrides, "override a key: --set net.dead_after=5s")
      ->type_name("KEY=VALUE");
  command
      ->add_option("--out", arguments.out,
                   "folder of its log (default: run.out/hub, or runs/NAME-hub)")
      ->type_name("DIR");
  command
      ->add_option_function<std::string>(
          "--resume",
          [&arguments](const std::string& value) { arguments.resume = value != "never"; },
          "go on with the log that is in the folder, if there is one")
      ->expected(0, 1)
      ->check(CLI::IsMember({"auto", "never"}))
      ->type_name("[auto|never]");
  command
      ->add_option("--listen", arguments.links.listen,
                   "where to bind (default: hub.address's port)")
      ->type_name("HOST:PORT");
  command
      ->add_option("--key", arguments.links.key_file,
                   "the hub's secret key (default: keys/hub.key beside CONFIG)")
      ->type_name("FILE");
  repeated(*command, "--address", arguments.links.addresses,
           "where a site is reached, instead of the file's")
      ->type_name("NAME=HOST:PORT");
  command->callback([&parsed] {
    parsed.action = [&parsed](Session& session) { return command_hub(parsed.hub, session); };
  });
}

}  // namespace isthmus::app
