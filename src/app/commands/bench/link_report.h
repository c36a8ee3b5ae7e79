// SPDX-License-Identifier: Apache-2.0
// Measured links for people, for programs, and as a links file. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/common/terminal.h"
#include "config/links_file.h"
#include "transport/links/probe/link_survey.h"

namespace isthmus::app {

/// What the bytes of its own links have cost the process that reports.
struct CarryingCost {
  WorkerId self{-1};
  std::uint64_t bytes = 0;  // sent and received
  double processor_s = 0;   // of all its threads

  /// Bits that one core sends or receives in a second; nothing where too little passed to tell.
  [[nodiscard]] std::optional<double> bits_a_core() const;
  /// What bounds a direction of its own links at this rate: "processor" where it keeps half of a
  /// core busy, else "line".
  [[nodiscard]] const char* bound_at(double bits_per_s) const;
};
[[nodiscard]] CarryingCost carrying_cost(const Survey& survey, WorkerId self, double processor_s);
/// The same in a sentence or two; empty where too little passed.
[[nodiscard]] std::string carrying_words(const Survey& survey, const CarryingCost& cost);

/// A row a direction, and what its columns mean.
[[nodiscard]] std::string link_table(const Survey& survey, const Terminal& terminal);

/// One object for the direction of `pair` from a to b, or from b to a. What was not measured is
/// null.
[[nodiscard]] std::string link_json(const Survey& survey, const PairMeasurement& pair, bool up);

/// The entry of a links file: the line that, in a simulation, gives the rates that were measured.
/// What TCP had to repeat is in those already and becomes no `loss`.
[[nodiscard]] NotedLink noted_link(const Survey& survey, const PairMeasurement& pair);

}  // namespace isthmus::app
