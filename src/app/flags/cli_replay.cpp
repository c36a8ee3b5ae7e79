// SPDX-License-Identifier: Apache-2.0
// Flags of `replay`.
#include "app/flags/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kReplayHelp =
    "A member that comes late needs no weights from the others: those that the run began from, or\n"
    "any of its checkpoints, and method.log give them, bit for bit. The log's digests are "
    "compared\n"
    "on the way.\n\n"
    "  isthmus replay runs/NAME/method.log models/base --out now\n"
    "  isthmus replay runs/NAME/method.log models/base --expect runs/NAME/ckpt/last";

}  // namespace

void add_replay_command(CLI::App& app, Parsed& parsed) {
  CLI::App* command = subcommand(
      app, "replay", "compute the weights of an spsa run from its start and its log", kReplayHelp);
  command->add_option("LOG", parsed.replay.log, "method.log of the run")->required();
  command
      ->add_option("BASE", parsed.replay.base,
                   "model folder it began from (model.init), or a checkpoint of the run")
      ->required();
  option(*command, "--out", "DIR", parsed.replay.out, "model folder to write");
  option(*command, "--expect", "DIR", parsed.replay.expect,
         "fail unless these are the same weights, bit for bit");
  set_action(*command, parsed, command_replay, parsed.replay);
}

}  // namespace isthmus::app
