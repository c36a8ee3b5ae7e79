// SPDX-License-Identifier: Apache-2.0
// `hub`: a process beside the sites that says which rounds are final.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/commands/links_flag.h"
#include "app/common/signals.h"
#include "app/observe/http_server.h"
#include "app/observe/hub_page.h"
#include "config/links_file.h"
#include "core/base/log.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "session/hub/hub_board.h"
#include "session/hub/hub_keys.h"
#include "session/hub/hub_supervisor.h"
#include "session/run/owner_shares.h"
#include "session/site/site_links.h"
#include "session/site/site_routes.h"

namespace isthmus::app {
namespace {

std::vector<std::string> names_of(const Config& config) {
  std::vector<std::string> names;
  for (const SiteConfig& site : config.sites) names.push_back(site.name);
  return names;
}

}  // namespace

int command_hub(const HubArguments& arguments, const std::filesystem::path& links,
                Session& session) {
  Config config = load_config(arguments.config, arguments.overrides, schema_context());
  if (config.hub.address.empty()) {
    throw ConfigError(
        fmt::format("hub: {} has no [hub]: add it with address = \"HOST:PORT\", where all sites "
                    "reach it",
                    arguments.config.string()));
  }
  if (!config.hub.site.empty()) {
    throw ConfigError(fmt::format(
        "hub: {} has hub.site = \"{}\": the process of that site is the hub; remove the "
        "key to run a separate hub",
        arguments.config.string(), config.hub.site));
  }
  if (!links.empty()) use_links_file(config, links);
  set_addresses(config, arguments.links.addresses);
  check_addresses(config);
  static_cast<void>(owner_shares(config));                 // checks the links
  static_cast<void>(is_elastic(config, arguments.links));  // checks the method
  const std::filesystem::path folder = hub_folder(config, arguments.out);
  SystemRuntime runtime;
  HubBoard board(names_of(config));
  std::optional<HttpServer> pages;
  if (!arguments.http.empty()) {
    pages.emplace(runtime, parse_http_address("--http", arguments.http),
                  [&](std::string_view path) {
                    return hub_page(path, board.snapshot(runtime.clock().now()));
                  });
    log_info("watch the hub at {}", url_of(pages->address()));
    if (!pages->address().loopback()) {
      log_warning(
          "--http: {}:{} is open to everybody on the network, without a password: all can "
          "read the names of the run's sites and which are connected",
          pages->address().host, pages->address().port);
    }
  }
  const SignalScope signals;
  HubSupervisor lives({.config = config,
                       .links = arguments.links,
                       .folder = folder,
                       .resumes = arguments.resume,
                       .board = &board,
                       .stopped = [] { return SignalScope::wish() != StopWish::kNone; },
                       .wishes = SignalScope::wishes()});
  if (lives.serve()) return 0;
  session.err.write(fmt::format(
      "isthmus: hub: stopped; the sites wait for it: start it again with --out {} --resume auto\n",
      folder.string()));
  return static_cast<int>(ExitCode::kInterrupted);
}

}  // namespace isthmus::app
