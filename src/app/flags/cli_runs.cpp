// SPDX-License-Identifier: Apache-2.0
// Flags of `runs` and `merge`.
#include "app/flags/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kMergeHelp =
    "Sites, seeds or the last checkpoints of one run, for example:\n\n"
    "  isthmus merge runs/a runs/b --out models/mean\n"
    "  isthmus merge runs/a/ckpt/step-900 runs/a/ckpt/step-1000 --weights 1,3 --out models/mean";

using RunsCommand = int (*)(const RunsArguments&, Session&);

CLI::App* runs_command(CLI::App& runs, Parsed& parsed, const std::string& name,
                       const std::string& text, RunsCommand run) {
  CLI::App* command = subcommand(runs, name, text);
  command->callback([&parsed, run] {
    if (!parsed.run.empty()) parsed.runs.runs = {parsed.run};
    parsed.action = [&parsed, run](Session& session) { return run(parsed.runs, session); };
  });
  return command;
}

}  // namespace

void add_runs_commands(CLI::App& app, Parsed& parsed) {
  CLI::App* runs = subcommand(app, "runs", "the runs of a folder: list, show, tag, remove");
  runs->require_subcommand(1);

  CLI::App* list = runs_command(*runs, parsed, "ls", "a line each", command_runs_list);
  list->add_option("FOLDER", parsed.runs.folder, "where they are (default: runs)");
  repeated(*list, "--tag", "TAG", parsed.runs.tags, "only those with this tag");

  runs_command(*runs, parsed, "show", "one of them, as `inspect` does", command_runs_show)
      ->add_option("RUN", parsed.run, "its folder")
      ->required();

  CLI::App* tag = runs_command(*runs, parsed, "tag", "put tags to a run", command_runs_tag);
  tag->add_option("RUN", parsed.run, "its folder")->required();
  tag->add_option("TAG", parsed.runs.tags, "to add");
  repeated(*tag, "--remove", "TAG", parsed.runs.unwanted, "a tag to take away");

  CLI::App* remove = runs_command(
      *runs, parsed, "rm", "remove what runs have written; other files stay", command_runs_remove);
  remove->add_option("RUN", parsed.runs.runs, "their folders")->required();
  remove->add_flag("--force", parsed.runs.force, "a run that still goes on, too");

  CLI::App* merge =
      subcommand(app, "merge", "write the weighted mean of several models", kMergeHelp);
  merge->add_option("FROM", parsed.merge.from, "runs, checkpoints or model folders")->required();
  option(*merge, "--out", "DIR", parsed.merge.out, "model folder to write")->required();
  option(*merge, "--weights", "W,W...", parsed.merge.weights,
         "of each, in their order (default: equal)")
      ->delimiter(',')
      ->allow_extra_args(false);
  set_action(*merge, parsed, command_merge, parsed.merge);
}

}  // namespace isthmus::app
