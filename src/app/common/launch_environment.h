// SPDX-License-Identifier: Apache-2.0
// The place of this process among several, from the environment that the launcher has set: for
// `train --site auto`, and for `doctor`.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "isthmus/config.h"

namespace isthmus::app {

struct LaunchEnvironment {
  std::string by;        // "Slurm", "Open MPI", ...
  std::string variable;  // that holds the rank
  int rank = 0;
  std::optional<int> size;  // processes; not every launcher tells
  std::optional<int> here;  // processes on this machine; not every launcher tells
};

/// Value of an environment variable; nothing if it is not set.
using Lookup = std::function<std::optional<std::string>(const char* variable)>;
[[nodiscard]] Lookup environment();

/// The first match of ours (ISTHMUS_RANK, ISTHMUS_SIZE), Open MPI, MPICH and Intel MPI, torchrun,
/// Flux, indexed jobs of Kubernetes, Slurm. THROWS: ConfigError for a value that is no number, or a
/// rank beyond the size.
[[nodiscard]] std::optional<LaunchEnvironment> find_launch_environment(const Lookup& look);

/// Whether mpirun, or srun with MPI, started this process as one of several.
[[nodiscard]] bool under_mpi(const Lookup& look);

/// This process's site: the one at its rank in the file. THROWS: ConfigError when no variable gives
/// a rank, or the numbers of processes and sites differ.
[[nodiscard]] std::string site_of_environment(const Config& config, const Lookup& look);

}  // namespace isthmus::app
