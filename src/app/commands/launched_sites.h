// SPDX-License-Identifier: Apache-2.0
// The sites of a run as child processes: their output, their end, and restarts.
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
  std::vector<std::string> command_again;  // resumes from the first one's files
  bool hub = false;                        // ends by itself after the sites; gets no signals
  bool program = false;                    // not `isthmus train`: its exit codes are less specific
  std::filesystem::path run = {};          // of a program on this machine: its run's folder
  bool job = false;        // an MPI job: stopped by SIGUSR1, which its launcher passes on
  int network_space = -1;  // as in ChildProcess
};

struct LaunchFailure {
  std::string site;
  int exit_code = 0;  // 128 + N when signal N killed it
};

/// Whether a restart of a site can help after this exit code: it was killed, or lost the others. A
/// user's program may report that with 1 too (torchrun does).
[[nodiscard]] bool mends_by_restart(int exit_code, bool program = false);

/// Restart delay in seconds after `n` short lives in a row, from 1 on: 1, 2, 4 ... 30.
[[nodiscard]] double restart_delay_s(int n);

/// Short lives in a row after a process that lived `lived_s`, with `before` of them earlier: a life
/// of 30 s or more begins a new row, so that faults days apart do not add up.
[[nodiscard]] int short_lives(int before, double lived_s);

/// Starts all sites, and restarts each up to `restarts` times, until they have ended for good.
/// Writes their output to `err`, line by line under their names, and forwards signals to all. A
/// site is not restarted if its run was told to stop, if one site has completed the run, or if one
/// has ended with an error that no restart helps: the others then notice, or are ended. Their hub
/// is restarted as long as there are sites. Blocks. RETURNS: the first final end with an exit code
/// other than 0, if any. THROWS: SystemError when the machine refuses a process.
[[nodiscard]] std::optional<LaunchFailure> run_sites(std::span<const LaunchedSite> sites,
                                                     int restarts, Terminal& err);

}  // namespace isthmus::app
