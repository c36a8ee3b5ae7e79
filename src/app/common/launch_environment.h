// SPDX-License-Identifier: Apache-2.0
// Which of several processes this one is, as whatever started them says: for `train --site auto`,
// and for `doctor`.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "isthmus/config.h"

namespace isthmus::app {

struct LaunchEnvironment {
  std::string by;        // "Slurm", "Open MPI", ...
  std::string variable;  // that the rank comes from
  int rank = 0;
  std::optional<int> size;  // processes; not everybody says
  std::optional<int> here;  // of them on this machine; not everybody says
};

/// Value of an environment variable; nothing when it is not set.
using Lookup = std::function<std::optional<std::string>(const char* variable)>;
[[nodiscard]] Lookup environment();

/// The first that matches of ours (ISTHMUS_RANK, ISTHMUS_SIZE), Open MPI, MPICH and Intel MPI,
/// torchrun, Flux, indexed jobs of Kubernetes, Slurm. THROWS: ConfigError for a value that is no
/// number, or a rank beyond the size.
[[nodiscard]] std::optional<LaunchEnvironment> find_launch_environment(const Lookup& look);

/// Started by mpirun, or by srun with MPI, as one process of several.
[[nodiscard]] bool under_mpi(const Lookup& look);

/// The site that this process is: its rank's in the file. THROWS: ConfigError when nothing says a
/// rank, or the processes are not as many as the sites.
[[nodiscard]] std::string site_of_environment(const Config& config, const Lookup& look);

}  // namespace isthmus::app
