// SPDX-License-Identifier: Apache-2.0
// Flags of `keygen`.
#include "app/flags/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kKeygenHelp =
    "Links beyond this machine are encrypted when every site has a key. For each name this writes\n"
    "DIR/NAME.key, which holds the secret: take it to that site and nowhere else. What is printed\n"
    "is public and goes into the configuration, the same at all sites.\n\n"
    "  isthmus keygen east west\n"
    "  isthmus keygen east west --out /etc/isthmus/keys";

}  // namespace

void add_keygen_command(CLI::App& app, Parsed& parsed) {
  CLI::App* command =
      subcommand(app, "keygen", "make the keys that sites prove themselves with", kKeygenHelp);
  command->add_option("NAME", parsed.keygen.names, "sites, as site.name calls them")->required();
  option(*command, "--out", "DIR", parsed.keygen.out, "folder to write into (default: keys)");
  set_action(*command, parsed, command_keygen, parsed.keygen);
}

}  // namespace isthmus::app
