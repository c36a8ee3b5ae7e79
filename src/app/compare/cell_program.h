// SPDX-License-Identifier: Apache-2.0
// A program of the user's that trains a comparison's cells in the place of the built-in trainer
// (`compare --program`). Each cell is a child process, told in its environment which configuration
// it trains and in which folder (python/isthmus/_launched.py); the run that it leaves there is read
// back and checked. The runner of cells (cell_runner.h) is the caller.
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

/// THROWS: ConfigError naming the key of `variant` that a program's cells cannot have.
void check_program(const CellProgram& program, const Config& config, bool simulated,
                   const std::string& variant);

/// Keys that the file gives and only the built-in trainer obeys, "train.kernels"; a program may
/// read them.
[[nodiscard]] std::vector<std::string> keys_of_own_trainer(const Config& config);

/// A text that is equal for equal programs: the command, and the content of each file that a word
/// of it names. THROWS: SystemError when such a file cannot be read.
[[nodiscard]] std::string program_digest(const Storage& storage, const CellProgram& program);

/// One run by the program. References are borrowed for the call.
struct ProgramCell {
  const CellProgram& program;
  const Config& config;
  bool simulated = false;
  std::filesystem::path folder;  // of the run
  int threads = 1;               // OMP_NUM_THREADS of the program, unless the environment has one
  bool checkpoint = false;       // the run's checkpoints stay
  std::function<void(std::int64_t step)> on_step;  // about twice a second: the run's newest step
};

/// Blocks until the program has ended. Fills in what the run found; `result.directory` becomes the
/// folder of the first site where each site has its own. A run that has diverged is a result.
/// RETURNS: false when a signal has stopped the run; `result` then holds nothing.
/// THROWS: RunError when the program fails, leaves no run, another run than `config`, or one
/// without evaluations.
[[nodiscard]] bool run_program_cell(const ProgramCell& cell, report::CellResult& result);

/// Files beside a cell's folder: its configuration, and what its program has printed.
[[nodiscard]] std::filesystem::path config_beside(const std::filesystem::path& folder);
[[nodiscard]] std::filesystem::path log_beside(const std::filesystem::path& folder);

}  // namespace isthmus::app
