// SPDX-License-Identifier: Apache-2.0
// Facts about this binary and its machine, for manifests, `doctor` and --version.
#pragma once

#include <cstdint>
#include <string>

namespace isthmus::app {

struct BuildInfo {
  std::string version;   // "0.1.0"
  std::string git;       // "a1b2c3d" or "a1b2c3d-dirty"; "unknown" outside a repository
  std::string compiler;  // "GNU 12.2.0"
  std::string flags;     // "-O3 -DNDEBUG"
  std::string build_type;
};
[[nodiscard]] BuildInfo build_info();
/// "0.1.0 a1b2c3d": the program version of a result.
[[nodiscard]] std::string program_version();

struct MachineInfo {
  std::string cpu;  // model name
  int cores = 1;    // available to this process
  std::string os;   // "Linux 6.1.0 x86_64, Debian GNU/Linux 12"
  std::uint64_t memory_bytes = 0;
  std::uint64_t available_bytes = 0;
};
[[nodiscard]] MachineInfo machine_info();

}  // namespace isthmus::app
