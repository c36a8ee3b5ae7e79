// SPDX-License-Identifier: Apache-2.0
// `frames`: plain arguments in, exit code out, as in commands.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "app/common/commands.h"

namespace CLI {
class App;
}

namespace isthmus::app {

struct FramesArguments {
  std::filesystem::path file;        // written by `train --record`
  int rounds = 10;                   // number to show, the longest ones
  std::optional<std::int64_t> step;  // instead: all frames of the rounds sent after this step
};

int command_frames(const FramesArguments& arguments, Session& session);

struct Parsed;
/// The command and its flags (cli_frames.cpp).
void add_frames_command(CLI::App& app, Parsed& parsed);

}  // namespace isthmus::app
