// SPDX-License-Identifier: Apache-2.0
// Flags of `hub`.
#include <memory>

#include "app/commands/hub_commands.h"
#include "app/commands/links_flag.h"
#include "app/flags/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kHubHelp =
    "With [hub] in the file, this process coordinates membership and decides which rounds\n"
    "are final, so that any site may die, the first too. It trains nothing and needs no data and "
    "no\n"
    "GPU. Its decisions are in DIR/hub.log. If the hub dies, the sites train until a round needs\n"
    "it, then wait. Start it again with the same command:\n\n"
    "  isthmus hub run.toml --out runs/hub --resume auto";

constexpr std::string_view kInviteHelp =
    "Prints one string that lets a site without a key in the file come into the run, at its start\n"
    "or later. It is a secret until it is used; it is good for --uses keys, for --ttl, by the\n"
    "hub's clock. At the site:\n\n"
    "  isthmus keygen west\n"
    "  isthmus train run.toml --site west --invite isthmus1...      (or in keys/west.invite)";

CLI::App* keys_command(CLI::App& hub, HubKeysArguments& arguments, const std::string& name,
                       const std::string& text) {
  CLI::App* command = subcommand(hub, name, text);
  option(*command, "CONFIG", "", arguments.config, "TOML file that describes the run")->required();
  repeated(*command, "--set", "KEY=VALUE", arguments.overrides,
           "override a key: --set run.out=runs/wan");
  option(*command, "--hub", "DIR", arguments.folder,
         "folder of the hub's log (default: run.out/hub, or runs/NAME-hub)");
  return command;
}

void add_keys_commands(CLI::App& hub, Parsed& parsed) {
  // Shared by the flags below, which fill it, and the actions, which are kept by `parsed`.
  const auto shared = std::make_shared<HubKeysArguments>();
  HubKeysArguments& arguments = *shared;
  CLI::App* invite = keys_command(hub, arguments, "invite", "let a site without a key come in");
  invite->footer(std::string(kInviteHelp));
  option(*invite, "--name", "SITE", arguments.site, "the site")->required();
  option(*invite, "--ttl", "TIME", arguments.ttl, "how long it is good (default 24h)");
  option(*invite, "--uses", "N", arguments.uses, "keys that may come with it, one after another")
      ->check(CLI::Range(1, 1000));
  option(*invite, "--address", "HOST:PORT", arguments.address,
         "where the site reaches the hub (default: hub.address)");
  option(*invite, "--out", "FILE", arguments.out, "write it into a file, for its owner alone");
  set_action(*invite, parsed, command_hub_invite, shared);
  CLI::App* revoke = keys_command(hub, arguments, "revoke", "bar a site's key for good");
  option(*revoke, "NAME", "", arguments.site, "the site")->required();
  set_action(*revoke, parsed, command_hub_revoke, shared);
  CLI::App* keys = keys_command(hub, arguments, "keys", "which sites are admitted, and how");
  set_action(*keys, parsed, command_hub_keys, shared);
}

}  // namespace

void add_hub_command(CLI::App& app, Parsed& parsed) {
  CLI::App* command =
      subcommand(app, "hub", "coordinate the sites of a run, so that any site may die", kHubHelp);
  HubArguments& arguments = parsed.hub;
  add_keys_commands(*command, parsed);
  command->require_subcommand(0, 1);
  option(*command, "CONFIG", "", arguments.config, "TOML file that describes the run");
  repeated(*command, "--set", "KEY=VALUE", arguments.overrides,
           "override a key: --set net.dead_after=5s");
  option(*command, "--out", "DIR", arguments.out,
         "folder of its log (default: run.out/hub, or runs/NAME-hub)");
  command
      ->add_option_function<std::string>(
          "--resume",
          [&arguments](const std::string& value) { arguments.resume = value != "never"; },
          "go on with the log that is in the folder, if there is one")
      ->expected(0, 1)
      ->check(CLI::IsMember({"auto", "never"}))
      ->type_name("[auto|never]");
  option(*command, "--listen", "HOST:PORT", arguments.links.listen,
         "where to bind (default: hub.address's port)");
  option(*command, "--key", "FILE", arguments.links.key_file,
         "the hub's secret key (default: keys/hub.key beside CONFIG)");
  // log.http is the sites': with one of them on this machine its port is taken.
  option(*command, "--http", "ADDRESS:PORT", arguments.http,
         "serve a page about the hub, /metrics and /healthz (log.http is for sites)");
  repeated(*command, "--address", "NAME=HOST:PORT", arguments.links.addresses,
           "where a site is reached, instead of the file's");
  const auto links = add_links_flag(*command);
  command->callback([command, links, &parsed] {
    if (!command->get_subcommands().empty()) return;
    if (parsed.hub.config.empty()) {
      throw CLI::RequiredError("CONFIG");
    }
    parsed.action = [links, &parsed](Session& session) {
      return command_hub(parsed.hub, *links, session);
    };
  });
}

}  // namespace isthmus::app
