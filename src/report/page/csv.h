// SPDX-License-Identifier: Apache-2.0
// The runs' numbers as CSV (RFC 4180, header line first), for other programs. Non-finite numbers
// are empty fields; units are in the column names, losses are in nats a token. The first column of
// each table is the run's label. Pure functions; lines are in the order of `runs`.
#pragma once

#include <string>
#include <vector>

#include "report/page/page.h"

namespace isthmus::report {

/// A line a run: its final numbers.
[[nodiscard]] std::string runs_csv(const std::vector<RunView>& runs);
/// A line a training step.
[[nodiscard]] std::string train_csv(const std::vector<RunView>& runs);
/// A line an evaluation.
[[nodiscard]] std::string eval_csv(const std::vector<RunView>& runs);
/// A line a round of a fragment.
[[nodiscard]] std::string rounds_csv(const std::vector<RunView>& runs);
/// A line a term of the prediction, then the lines "predicted" and "measured"; none without one.
[[nodiscard]] std::string prediction_csv(const std::vector<RunView>& runs);
/// The table at the top as JSON: {"runs":[{"run","method","steps",...}]}; null for unknown values.
[[nodiscard]] std::string runs_json(const std::vector<RunView>& runs);

}  // namespace isthmus::report
