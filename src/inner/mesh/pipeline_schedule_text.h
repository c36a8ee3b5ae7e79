// SPDX-License-Identifier: Apache-2.0
// Draws a simulated pipeline schedule as text: one line per rank, time from left to right.
//
//   rank 0 | F0 F1 .  .  B0--- F2 B1--- .  B2---
//   rank 1 | .  F0 B0--- F1 B1--- F2 B2--- .  .
//
// F forward, B backward (of the input only if W marks the weights'), the number of the micro-batch,
// a letter for the chunk if there are several ("F0a"), dots for waiting.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "inner/mesh/pipeline_schedule_check.h"

namespace isthmus {

struct PipelineTextOptions {
  std::size_t width = 80;          // columns; longer lines continue in another block of lines
  std::size_t blocks = 8;          // largest number of blocks; the text names what is left out
  std::string_view waiting = ".";  // one column wide
  /// Colours a pass; empty: no colours. `later` is true for chunks 1, 3, ….
  std::function<std::string(PipelineOpKind kind, bool later, std::string_view text)> paint;
};

/// Lines with newlines. The shortest pass has as many columns as the longest label.
[[nodiscard]] std::string draw_pipeline(const PipelineSchedule& schedule,
                                        const PipelineReport& report,
                                        const PipelineTextOptions& options = {});

}  // namespace isthmus
