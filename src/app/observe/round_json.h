// SPDX-License-Identifier: Apache-2.0
// Predicted and measured rounds as JSON: in summary.json, in a command's --json object, and back.
#pragma once

#include <string>
#include <string_view>

#include "record/round_times.h"

namespace isthmus::app {

/// {"at":WHOSE,"all":{...},"fragments":[{"frag","rounds","predicted_median_s","predicted_p95_s",
/// "measured_median_s","measured_p95_s","error"},...]}, and with `pairs`
/// "pairs":[[frag,step_send,predicted_s,measured_s],...]. `whose`: the worker whose rounds they
/// are. Times are in seconds; "error" is predicted / measured - 1 of the medians, or null.
[[nodiscard]] std::string rounds_json(const RoundComparison& comparison, const std::string& whose,
                                      bool pairs);

/// Reads the output of rounds_json, without the pairs. THROWS: std::exception for other input.
[[nodiscard]] RoundComparison read_rounds(std::string_view json);

}  // namespace isthmus::app
