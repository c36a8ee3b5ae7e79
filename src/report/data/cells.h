// SPDX-License-Identifier: Apache-2.0
// The cells of a comparison (cell: one training run), a line each in cells.jsonl. Written by
// `isthmus compare` at each cell's end, read by its --resume and by reports. Plain values; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isthmus::report {

/// The result of an evaluation, and the run's cost up to it.
struct CellEval {
  std::int64_t step = 0;
  double loss = 0;
  double clock_s = 0;        // simulated; NaN in a run on real threads
  double payload_bytes = 0;  // by the site that sent most; the surrogate's if declared
  double wire_bytes = 0;
};

enum class CellStage {
  kTune,  // a trial: only used to choose a variant's rates
  kSeed   // a run that is compared
};
enum class CellStatus {
  kOk,
  kFailed  // the run diverged: that is its result
};

struct CellResult {
  std::string key;            // digest of everything that can change the result
  std::string configuration;  // digest of its run file's part in `key`
  CellStage stage = CellStage::kSeed;
  std::string variant;
  std::string method;
  std::int64_t seed = 0;
  std::vector<std::pair<std::string, std::string>> tuned;  // "inner.lr", "0.004"
  CellStatus status = CellStatus::kOk;
  std::string cause;  // of a failure
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  std::int64_t parameters = 0;
  std::int64_t data_tokens = 0;  // of the data's training part
  double data_entropy = 0;       // nats a token, if known; else 0
  bool simulated = false;
  double utilisation = 0;  // share of the workers' time spent computing, on the run's clock
  double wall_s = 0;
  std::vector<CellEval> evals;  // in order of steps; the last is after the final sync
  std::string directory;        // of its run, relative to the comparison's folder
  std::string version;          // of the program: "0.1.0 6c8ec86"
  std::string finished;         // UTC

  /// Loss of the last evaluation; infinite for a failed run.
  [[nodiscard]] double final_loss() const;
};

/// A run without an evaluation, or with a loss that is not finite, has failed: its weights may
/// overflow in the last update, which no training loss shows.
void fail_without_loss(CellResult& cell);

/// One line of cells.jsonl, without the newline.
[[nodiscard]] std::string cell_line(const CellResult& cell);
/// RETURNS: nothing when `line` is no cell: torn, damaged, or of another version.
[[nodiscard]] std::optional<CellResult> read_cell(std::string_view line);

struct CellFile {
  std::vector<CellResult> cells;  // in the order of the file
  std::size_t damaged = 0;        // invalid lines, including a torn last one
};
/// All of cells.jsonl's text.
[[nodiscard]] CellFile read_cells(std::string_view text);

}  // namespace isthmus::report
