// SPDX-License-Identifier: Apache-2.0
#include "app/flags/cli.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "app/common/cli_errors.h"
#include "app/flags/cli_parser.h"
#include "core/base/log.h"
#include "core/base/suggest.h"

namespace isthmus::app {
namespace {

/// Names the misspelt word of a parse that failed. THROWS: UsageError, always.
[[noreturn]] void explain_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  std::vector<std::string> flags;
  std::string command = "isthmus";
  std::vector<std::string> unknown = app.remaining();
  const auto add_flags = [&flags](const CLI::App& from) {
    for (const CLI::Option* option : from.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        flags.push_back("--" + name);
      }
    }
  };
  add_flags(app);
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
    add_flags(*at);
    const auto more = at->remaining();
    unknown.insert(unknown.end(), more.begin(), more.end());
  }
  const std::string see = fmt::format("see `{} --help`", command);
  for (const std::string& word : unknown) {
    if (word.starts_with("-") && word.size() > 1) {
      const std::string name = word.substr(0, word.find('='));
      const auto near = closest(name, flags);
      throw UsageError(fmt::format("{}: unknown flag '{}'; {}{}", command, name,
                                   near ? fmt::format("did you mean '{}'? ", *near) : "", see));
    }
  }
  std::vector<std::string> names;
  for (const CLI::App* each : at->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(each->get_name());
  }
  if (!unknown.empty() && !names.empty()) {
    const auto near = closest(unknown.front(), names);
    throw UsageError(fmt::format("{}: no command '{}'; {}there are {}", command, unknown.front(),
                                 near ? fmt::format("did you mean '{}'? ", *near) : "",
                                 join(names)));
  }
  if (!unknown.empty()) {
    throw UsageError(
        fmt::format("{}: unexpected argument '{}'; {}", command, unknown.front(), see));
  }
  throw UsageError(fmt::format("{}: {}; {}", command, error.what(), see));
}

/// As written into the files of a run.
std::vector<std::string> without_secrets(std::vector<std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    constexpr std::string_view kFlag = "--invite";
    if (arguments[i].starts_with("--invite=")) arguments[i] = "--invite=...";
    if (arguments[i] == kFlag && i + 1 < arguments.size()) arguments[i + 1] = "...";
  }
  return arguments;
}

int parse_and_run(const std::vector<std::string>& arguments, Parsed& parsed) {
  const auto app = make_parser(parsed);
  try {
    // CLI11 takes the words in reverse order.
    std::vector<std::string> reversed = recompute_alone_is_full(arguments);
    std::ranges::reverse(reversed);
    app->parse(std::move(reversed));
  } catch (const CLI::Success& wish) {  // --help, --version
    std::ostringstream text;
    const int code = app->exit(wish, text, text);
    Terminal out(STDOUT_FILENO, ColorMode::kNever);
    out.write(text.str());
    return require_written(out, code);
  } catch (const CLI::ParseError& error) {
    if (arguments.empty()) {
      Terminal(STDERR_FILENO, ColorMode::kAuto).write(app->help() + "\n");
      throw UsageError("a command is missing; see isthmus --help, or begin with isthmus demo");
    }
    explain_parse_error(*app, error);
  }
  Terminal out(STDOUT_FILENO, parsed.color);
  Terminal err(STDERR_FILENO, parsed.color);
  set_log_level(parsed.quiet         ? LogLevel::kWarning
                : parsed.verbose > 0 ? LogLevel::kDebug
                                     : LogLevel::kInfo);
  Session session{.out = out,
                  .err = err,
                  .argv = without_secrets(arguments),
                  .quiet = parsed.quiet,
                  .verbose = parsed.verbose,
                  .json = parsed.json,
                  .progress = parsed.quiet ? ProgressMode::kNone : parsed.progress};
  const int code = parsed.action(session);
  return require_written(session, code);
}

}  // namespace

int run_command_line(const std::vector<std::string>& arguments) {
  Parsed parsed;
  // Known before the parse, so that even a parse error is told in the form asked for.
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  return report_errors(json, [&] { return parse_and_run(arguments, parsed); });
}

}  // namespace isthmus::app
