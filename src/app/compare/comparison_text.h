// SPDX-License-Identifier: Apache-2.0
// A comparison on the terminal: two tables, one or two sentences a variant, and the limits. No line
// is wider than 100 columns.
#pragma once

#include <string>

#include "app/common/commands.h"
#include "app/compare/comparison_plan.h"
#include "report/data/comparison.h"

namespace isthmus::app {

inline constexpr std::size_t kComparisonColumns = 100;

/// The common properties of the runs, for the heading: length, clock, links.
struct ComparisonSetting {
  std::string length;  // "2,000 steps of 2,048 tokens"
  std::string
      clock;  // "simulated; that of a 1B model at 1 s a step; east - west 100 Mbit/s, 80 ms"
};
/// Of the baseline's run file.
[[nodiscard]] ComparisonSetting setting_of(const Config& config);

[[nodiscard]] std::string render_comparison(const report::Comparison& comparison,
                                            const ComparisonSetting& setting,
                                            const Terminal& terminal);

/// Paragraph of at most kComparisonColumns columns, later lines indented by `indent`.
[[nodiscard]] std::string paragraph(std::string_view text, std::size_t indent);

}  // namespace isthmus::app
