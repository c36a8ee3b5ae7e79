// SPDX-License-Identifier: Apache-2.0
// `runs` and `merge`: plain arguments in, exit code out, as in commands.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

struct RunsArguments {
  std::filesystem::path folder = "runs";    // ls: runs below it
  std::vector<std::filesystem::path> runs;  // rm; tag and show: one
  std::vector<std::string> tags;            // tag: to add; ls: only runs that have all of these
  std::vector<std::string> unwanted;        // tag --remove
  bool force = false;                       // rm: also runs that are still running
};
int command_runs_list(const RunsArguments& arguments, Session& session);
int command_runs_show(const RunsArguments& arguments, Session& session);
/// Removes the files that a run has written; other files, and then the folder, stay. All runs are
/// checked before any is removed. THROWS: ConfigError for a folder that is no run, or (without
/// `force`) whose run has not ended; SystemError for a run that is in use.
int command_runs_remove(const RunsArguments& arguments, Session& session);
int command_runs_tag(const RunsArguments& arguments, Session& session);

struct MergeArguments {
  std::vector<std::filesystem::path> from;  // runs, checkpoints or model folders of one shape
  std::vector<double> weights;              // one each, in any unit; empty: equal
  std::filesystem::path out;
};
/// Writes the weighted mean of models, tensor by tensor, as a model folder.
int command_merge(const MergeArguments& arguments, Session& session);

}  // namespace isthmus::app
