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

/// Whether a restart of a site can help after this exit code: a signal killed it (above 128, except
/// 130), or it lost the others (5). A user's program may report that with 1 too (torchrun does).
[[nodiscard]] bool mends_by_restart(int exit_code, bool program = false);

/// Restart delay in seconds after `n` short lives in a row, from 1 on: 1, 2, 4 ... 30.
[[nodiscard]] double restart_delay_s(int n);

/// Short lives in a row after a process that lived `lived_s`, with `before` of them earlier: a life
/// of 30 s or more begins a new row, so that faults days apart do not add up.
[[nodiscard]] int short_lives(int before, double lived_s);

/// Starts all sites and the hub, restarts each up to `restarts` times, and blocks until all have
/// ended for good. Writes their output to `err`, line by line under their names, and forwards the
/// first signal to all sites; the hub gets none.
///
/// No site is restarted any more once a signal has come, once one site has completed the run, or
/// once one has ended with an error that no restart helps. In that last case the others have 30 s
/// to notice; then all get SIGINT, and 15 s later SIGKILL. The hub is restarted as long as sites
/// run, within the same limit of `restarts`.
///
/// RETURNS: the site (or hub) that first ended for good with an exit code other than 0 and 85 (left
/// with a checkpoint). If no site has completed the run, and there is no such end or one that a
/// restart could have helped, the first site that ended with 85 is returned instead. Nothing: all
/// ended with 0, or some left with 85 and the others completed the run. THROWS: SystemError when
/// the machine refuses a process.
[[nodiscard]] std::optional<LaunchFailure> run_sites(std::span<const LaunchedSite> sites,
                                                     int restarts, Terminal& err);

}  // namespace isthmus::app
