// SPDX-License-Identifier: Apache-2.0
// Cells side by side: what goes wrong between them ends the comparison with its cause.
#include "app/compare/cell_runner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/base/storage.h"
#include "core/temporary_directory.h"
#include "isthmus/errors.h"

namespace isthmus::app::this_file {
namespace {

constexpr const char* kFile = R"([model]
layers = 1
d_model = 16
heads = 2
[data]
source = "synth:markov1"
[train]
steps = 2
global_batch = "64 tok"
context = 16
[eval]
tokens = 64
[compare]
seeds = 1
tune = { seeds = 1, space = { "inner.lr" = [1e-3, 2e-3] } }
[variant.ddp]
[variant.clipped]
inner.clip = 0.5
)";

// A follow-up is made while other tasks wait for it; they must not wait for ever.
TEST(Runner, AFailureBetweenCellsEndsAllTasks) {
  SystemStorage storage;
  const Experiment experiment =
      Experiment::load_text(kFile, "two.toml", {"train.kernels=portable"}, schema_context());
  CellInputs inputs(storage);
  ComparisonPlan plan(experiment, {.inputs = [](const Config& config) {
                        const double lr = config.inner.lr;
                        if (lr != 1e-3 && lr != 2e-3) throw SystemError("no such disk");
                        return std::string("inputs");
                      }});
  const TemporaryDirectory folder;
  CellStore store(storage, folder / "cells.jsonl");
  const int silent = ::open("/dev/null", O_WRONLY);
  Terminal terminal(silent, ColorMode::kNever);
  Session session{.out = terminal, .err = terminal, .progress = ProgressMode::kNone};
  try {
    const RunLock lock(folder.path());
    (void)run_cells(plan, store, experiment, inputs,
                    {.folder = folder.path(), .lock = lock, .cores = 2, .jobs = 3}, session);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_STREQ(error.what(), "no such disk");
  }
  ::close(silent);
}

}  // namespace
}  // namespace isthmus::app::this_file
