// SPDX-License-Identifier: Apache-2.0
#include "app/flags/cli_parser.h"

namespace isthmus::app {

void add_status_command(CLI::App& app, Parsed& parsed) {
  CLI::App* status =
      subcommand(app, "status", "how a run is doing: the newest below runs/, or RUN");
  status->add_option("RUN", parsed.status.run,
                     "a run's folder, or the address that it printed (http://...)");
  status->add_flag("--watch", parsed.status.watch, "look every second until the run has ended");
  set_action(*status, parsed, command_status, parsed.status);
}

void add_http_flag(CLI::App& command, TrainArguments& arguments) {
  const auto take = [&arguments](const std::string& text) {
    std::string quoted;
    for (const char c : text) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    arguments.from_flags.push_back(
        {.text = "log.http=\"" + quoted + "\"", .flag = "--http", .given = text});
  };
  command
      .add_option_function<std::string>(
          "--http", take, "serve a page about the run, /metrics and /healthz (as log.http)")
      ->type_name("ADDRESS:PORT");
}

}  // namespace isthmus::app
