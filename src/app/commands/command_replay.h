// SPDX-License-Identifier: Apache-2.0
// `replay`: plain arguments in, exit code out, as in commands.h.
#pragma once

#include <filesystem>

#include "app/common/commands.h"

namespace isthmus::app {

struct ReplayArguments {
  std::filesystem::path log, base;  // an spsa log; a model folder or a checkpoint
  std::filesystem::path out;        // model folder to write, or empty
  std::filesystem::path expect;     // a folder with the expected weights, or empty
};

int command_replay(const ReplayArguments& arguments, Session& session);

}  // namespace isthmus::app
