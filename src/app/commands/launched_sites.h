// SPDX-License-Identifier: Apache-2.0
// The sites of a run as child processes: what they say, how they end, whether they are started
// again.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/common/terminal.h"

namespace isthmus::app {

struct LaunchedSite {
  std::string name;
  std::vector<std::string> command;
  std::vector<std::string> command_again;  // goes on with what the first has left
  bool hub = false;                // ends by itself once the sites have; signals are not for it
  bool program = false;            // not `isthmus train`: its exit codes say less
  std::filesystem::path run = {};  // of a program on this machine: the folder of its run
  bool job = false;        // an MPI job: to be told to stop by SIGUSR1, which its launcher hands on
  int network_space = -1;  // as of ChildProcess
};

struct LaunchFailure {
  std::string site;
  int exit_code = 0;  // 128 + N when signal N ended it
};

/// Whether starting a site again can mend what it ended with: it was killed, or lost the others. A
/// program of the user's may say 1 for that too (torchrun does).
[[nodiscard]] bool mends_by_restart(int exit_code, bool program = false);

/// Seconds to wait after `n` short lives in a row, from 1 on: 1, 2, 4 ... 30.
[[nodiscard]] double restart_delay_s(int n);

/// Short lives in a row, of which there were `before`, once a process has ended that lived so long:
/// what runs for 30 s and more begins a new row, so that faults days apart do not add up.
[[nodiscard]] int short_lives(int before, double lived_s);

/// Starts all, and again up to `restarts` times each, until they have ended for good; passes on
/// what they say to `err`, line by line under their names, and signals to all of them. Not to be
/// started again are sites of a run that was told to stop, that one has completed, or that one has
/// ended with what no restart mends: there the others notice, or are ended. Their hub is started
/// again as long as there are sites. Blocks.
/// RETURNS: the first that ended for good with an exit code other than 0, if one did.
/// THROWS: SystemError when the machine refuses a process.
[[nodiscard]] std::optional<LaunchFailure> run_sites(std::span<const LaunchedSite> sites,
                                                     int restarts, Terminal& err);

}  // namespace isthmus::app
