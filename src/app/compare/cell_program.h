// SPDX-License-Identifier: Apache-2.0
// A user's program that trains a comparison's cells in place of the built-in trainer (`compare
// --program`). Each cell is a child process; its environment names the configuration and the folder
// (python/isthmus/_launched.py). The run in that folder is read back and checked. Called by the
// runner of cells (cell_runner.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "core/base/storage.h"
#include "isthmus/config.h"
#include "report/data/cells.h"

namespace isthmus::app {

/// THROWS: ConfigError naming the key of `variant` that a program's cells do not support.
void check_program(const CellProgram& program, const Config& config, bool simulated,
                   const std::string& variant);

/// Keys of the file that only the built-in trainer obeys, such as "train.kernels"; a program may
/// read them.
[[nodiscard]] std::vector<std::string> keys_of_own_trainer(const Config& config);

/// A text that is equal for equal programs: the command, and the content of each file that one of
/// its words names. THROWS: SystemError when such a file cannot be read.
[[nodiscard]] std::string program_digest(const Storage& storage, const CellProgram& program);

/// One run of the program. References are borrowed for the call.
struct ProgramCell {
  const CellProgram& program;
  const Config& config;
  bool simulated = false;
  std::filesystem::path folder;  // of the run
  int threads = 1;               // OMP_NUM_THREADS of the program, unless the environment sets it
  bool checkpoint = false;       // keep the run's checkpoints
  std::function<void(std::int64_t step)> on_step;  // about twice a second: the run's newest step
};

/// Blocks until the program has ended. Fills `result` from the run; `result.directory` becomes the
/// first site's folder if each site has its own. A diverged run is a result. RETURNS: false when a
/// signal has stopped the run; `result` is then empty. THROWS: RunError when the program fails, or
/// leaves no run, a run of another configuration, or one without evaluations.
[[nodiscard]] bool run_program_cell(const ProgramCell& cell, report::CellResult& result);

/// Files next to a cell's folder: its configuration, and its program's output.
[[nodiscard]] std::filesystem::path config_beside(const std::filesystem::path& folder);
[[nodiscard]] std::filesystem::path log_beside(const std::filesystem::path& folder);

}  // namespace isthmus::app
