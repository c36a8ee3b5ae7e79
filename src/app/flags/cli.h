// SPDX-License-Identifier: Apache-2.0
// The command line: from argv to a command and its exit code. Knows every flag, and nothing else.
#pragma once

#include <string>
#include <vector>

namespace isthmus::app {

/// Runs one command line (without the program's name). Catches everything: an error becomes one
/// line on stderr (and one JSON object on stdout under --json) and its exit code.
[[nodiscard]] int run_command_line(const std::vector<std::string>& arguments);

/// A command with its flags, for help, suggestions and completion.
struct CommandFlags {
  std::string name;  // "train", "data inspect"
  std::string summary;
  std::vector<std::string> flags;  // "--set", "-h"
};

/// A completion script. THROWS: UsageError for a shell other than bash, zsh, fish.
[[nodiscard]] std::string completion_script(const std::string& shell,
                                            const std::vector<CommandFlags>& commands);

}  // namespace isthmus::app
