// SPDX-License-Identifier: Apache-2.0
// A played pipeline schedule drawn as text: a line for each rank, time from left to right.
//
//   rank 0 | F0 F1 .  .  B0--- F2 B1--- .  B2---
//   rank 1 | .  F0 B0--- F1 B1--- F2 B2--- .  .
//
// F forward, B backward (of the input alone where W stands for the weights'), the number of the
// micro-batch, a letter for the chunk where there are several ("F0a"), dots for waiting.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "inner/mesh/pipeline_schedule_check.h"

namespace isthmus {

struct PipelineTextOptions {
  std::size_t width = 80;          // columns; what is longer goes on in another block of lines
  std::size_t blocks = 8;          // at most; what is left out is said
  std::string_view waiting = ".";  // one column wide
  /// Colours a pass; empty: none. `later` is true for chunks 1, 3, ….
  std::function<std::string(PipelineOpKind kind, bool later, std::string_view text)> paint;
};

/// Lines with newlines. The shortest pass takes as many columns as the longest label.
[[nodiscard]] std::string draw_pipeline(const PipelineSchedule& schedule,
                                        const PipelineReport& report,
                                        const PipelineTextOptions& options = {});

}  // namespace isthmus
