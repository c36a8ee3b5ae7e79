// SPDX-License-Identifier: Apache-2.0
// The runs' numbers as CSV (RFC 4180, header line first), for other programs. Non-finite numbers
// are empty fields; units are in the column names.
#pragma once

#include <string>
#include <vector>

#include "report/page/page.h"

namespace isthmus::report {

[[nodiscard]] std::string runs_csv(const std::vector<RunView>& runs);
[[nodiscard]] std::string train_csv(const std::vector<RunView>& runs);
[[nodiscard]] std::string eval_csv(const std::vector<RunView>& runs);
[[nodiscard]] std::string rounds_csv(const std::vector<RunView>& runs);
[[nodiscard]] std::string prediction_csv(const std::vector<RunView>& runs);
/// The table at the top as JSON: {"runs":[{"run","method","steps",...}]}; null for unknown values.
[[nodiscard]] std::string runs_json(const std::vector<RunView>& runs);

}  // namespace isthmus::report
