// SPDX-License-Identifier: Apache-2.0
// Flags of `frames`.
#include <memory>

#include "app/commands/command_frames.h"
#include "app/flags/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kFramesHelp =
    "Shows what went to and came from each site, the rounds that took longest and what each of\n"
    "them waited for, as the site saw it that wrote the recording:\n\n"
    "  isthmus train run.toml --site east --out runs/wan/east --record east.frames\n"
    "  isthmus frames east.frames               # the ten rounds that took longest\n"
    "  isthmus frames east.frames --step 1200   # every frame of the rounds sent after step 1200";

}  // namespace

void add_frames_command(CLI::App& app, Parsed& parsed) {
  CLI::App* command =
      subcommand(app, "frames", "show what `train --record` has written down", kFramesHelp);
  // Shared by the flags, which fill it, and the action, which `parsed` keeps.
  const auto arguments = std::make_shared<FramesArguments>();
  command->add_option("FILE", arguments->file, "the recording; FILE.old beside it is read too")
      ->required();
  option(*command, "--rounds", "N", arguments->rounds, "how many rounds to show, the longest first")
      ->check(CLI::NonNegativeNumber);
  option(*command, "--step", "STEP", arguments->step,
         "show every frame of the rounds sent after this step")
      ->check(CLI::NonNegativeNumber);
  set_action(*command, parsed, command_frames, arguments);
}

}  // namespace isthmus::app
