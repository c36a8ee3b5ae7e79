// SPDX-License-Identifier: Apache-2.0
// `compare --against ref:NAME`: compares a user's build with small reference runs whose losses are
// part of the program. report/data/reference.h has the statistics.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/common/terminal.h"
#include "isthmus/config.h"
#include "report/data/reference.h"

namespace isthmus::app {

struct Reference {
  std::string_view name;   // "nano"
  std::string_view toml;   // the comparison: variants at fixed rates, no links
  std::string_view cells;  // its runs, as in cells.jsonl
};

/// All references (references/, by references.cmake).
[[nodiscard]] const std::vector<Reference>& references();

/// `spelling`: "ref:NAME". THROWS: UsageError naming the existing references.
[[nodiscard]] const Reference& reference_named(const std::string& spelling);

/// Its runs, parsed.
[[nodiscard]] std::vector<report::CellResult> runs_of(const Reference& reference);

/// THROWS: ConfigError when runs of `variant` with `config` are not evaluated at the steps of the
/// reference's `runs`, so that their losses cannot be compared. `name`: "ref:nano".
void check_evaluations(const std::vector<report::CellResult>& runs, const std::string& name,
                       const std::string& variant, const Config& config);

/// The new runs compared with the reference's.
struct ReferenceResult {
  std::string name;     // "ref:nano"
  std::string program;  // that made the reference
  int reference_seeds = 0;
  std::vector<report::CurveCheck> checks;
  [[nodiscard]] bool normal() const;
};
/// `fresh` runs compared with the reference's `runs`.
[[nodiscard]] ReferenceResult against_reference(const std::string& name,
                                                const std::vector<report::CellResult>& runs,
                                                const std::vector<report::CellResult>& fresh);

[[nodiscard]] std::string render_reference(const ReferenceResult& result, const Terminal& terminal);
/// One object on one line.
[[nodiscard]] std::string reference_json(const ReferenceResult& result);

}  // namespace isthmus::app
