// SPDX-License-Identifier: Apache-2.0
// The arguments of a process that is one site of a run, as the command line or a caller gives them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isthmus::app {

/// `train --site NAME`: this process is one site of several.
struct SiteArguments {
  std::string name;                    // one of [[site]], or "auto": from the environment
  std::string listen;                  // HOST:PORT; empty: all interfaces, site.address's port
  std::filesystem::path key_file;      // secret key; empty: keys/NAME.key next to the configuration
  std::vector<std::string> addresses;  // "NAME=HOST:PORT": replaces addresses of the file
  bool mpi = false;                    // the sites are the processes of an MPI job
};

}  // namespace isthmus::app
