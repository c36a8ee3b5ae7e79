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

/// Processor time that the reporting process has spent on the bytes of its links.
struct CarryingCost {
  WorkerId self{-1};
  std::uint64_t bytes = 0;  // sent and received
  double processor_s = 0;   // of all its threads

  /// Bits that one core sends or receives in a second; nothing if too few bytes passed to tell.
  [[nodiscard]] std::optional<double> bits_a_core() const;
  /// Whether this process bounds a direction of its links at this rate, which then keeps half of a
  /// core busy.
  [[nodiscard]] bool bounds(double bits_per_s) const;
};
[[nodiscard]] CarryingCost carrying_cost(const Survey& survey, WorkerId self, double processor_s);
/// The same in a sentence or two; empty if too few bytes passed.
[[nodiscard]] std::string carrying_words(const Survey& survey, const CarryingCost& cost);

/// A row for each direction, and an explanation of the columns.
[[nodiscard]] std::string link_table(const Survey& survey, const Terminal& terminal);

/// One object for the direction of `pair` from a to b (`up`), or from b to a. Values that were not
/// measured are null.
[[nodiscard]] std::string link_json(const Survey& survey, const PairMeasurement& pair, bool up);

/// The entry of a links file whose simulation gives the measured rates. The rates include the
/// effect of TCP's retransmissions, which therefore do not become a `loss`.
[[nodiscard]] NotedLink noted_link(const Survey& survey, const PairMeasurement& pair);

}  // namespace isthmus::app
