// SPDX-License-Identifier: Apache-2.0
// Completion scripts, made from the same flags that the parser knows.
#include <fmt/format.h>

#include "app/common/commands.h"
#include "app/flags/cli.h"
#include "core/base/suggest.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kGlobalFlags =
    "--quiet --verbose --json --color --progress --help --version";

/// Names one level below `command` ("" for the top).
std::vector<std::string> children(const std::string& command,
                                  const std::vector<CommandFlags>& commands) {
  std::vector<std::string> names;
  const std::string prefix = command.empty() ? "" : command + " ";
  for (const CommandFlags& each : commands) {
    const bool below = each.name.starts_with(prefix) && each.name.size() > prefix.size();
    if (below && each.name.find(' ', prefix.size()) == std::string::npos) {
      names.push_back(each.name.substr(prefix.size()));
    }
  }
  return names;
}

std::string words_of(const CommandFlags& command, const std::vector<CommandFlags>& commands) {
  return fmt::format("{} {} {}", join(children(command.name, commands), " "),
                     join(command.flags, " "), kGlobalFlags);
}

/// One function that serves bash, and zsh through bashcompinit.
std::string bash_script(const std::vector<CommandFlags>& commands) {
  std::string cases;
  for (const CommandFlags& command : commands) {
    cases += fmt::format("    '{}') words='{}' ;;\n", command.name, words_of(command, commands));
  }
  return fmt::format(R"(_isthmus() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command='' words='' word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in
      -*) ;;
      *) case " {} " in
           *" ${{command:+$command/}}$word "*) command="${{command:+$command/}}$word" ;;
         esac ;;
    esac
  done
  case "${{command//\// }}" in
    '') words='{} {}' ;;
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current"))
}}
complete -o filenames -F _isthmus isthmus
)",
                     [&commands] {
                       std::vector<std::string> paths;
                       for (const CommandFlags& command : commands) {
                         std::string path = command.name;
                         for (char& c : path) {
                           c = c == ' ' ? '/' : c;
                         }
                         paths.push_back(path);
                       }
                       return join(paths, " ");
                     }(),
                     join(children("", commands), " "), kGlobalFlags, cases);
}

std::string fish_script(const std::vector<CommandFlags>& commands) {
  std::string script = "complete -c isthmus -f -n __fish_use_subcommand\n";
  for (const CommandFlags& command : commands) {
    const std::size_t space = command.name.find(' ');
    const std::string parent = command.name.substr(0, space);
    if (space == std::string::npos) {
      script += fmt::format("complete -c isthmus -n __fish_use_subcommand -a {} -d '{}'\n",
                            command.name, command.summary);
    } else {
      script +=
          fmt::format("complete -c isthmus -n '__fish_seen_subcommand_from {}' -a {} -d '{}'\n",
                      parent, command.name.substr(space + 1), command.summary);
    }
    for (const std::string& flag : command.flags) {
      script += fmt::format("complete -c isthmus -n '__fish_seen_subcommand_from {}' -l {}\n",
                            command.name.substr(command.name.rfind(' ') + 1), flag.substr(2));
    }
  }
  return script;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<CommandFlags>& commands) {
  if (shell == "bash") {
    return bash_script(commands);
  }
  if (shell == "zsh") {
    return "autoload -U +X bashcompinit && bashcompinit\n" + bash_script(commands);
  }
  if (shell == "fish") {
    return fish_script(commands);
  }
  throw UsageError(fmt::format("completion: no script for '{}'; shells: bash, zsh, fish", shell));
}

}  // namespace isthmus::app
