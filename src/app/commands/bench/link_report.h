// SPDX-License-Identifier: Apache-2.0
// Measured links for people, for programs, and as a links file. Without side effects; the table
// asks the terminal for its width and character set.
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

  /// Bits that one core sends or receives in a second; nothing if too few bytes passed (below 1
  /// MiB) or too little processor time was spent (below 0.02 s) to tell.
  [[nodiscard]] std::optional<double> bits_a_core() const;
  /// Whether this process's speed bounds a direction that carries `bits_per_s`: that rate keeps at
  /// least half of a core busy. False if bits_a_core cannot tell.
  [[nodiscard]] bool bounds(double bits_per_s) const;
};
/// `processor_s`: spent during the whole survey. Only the bytes of the pairs of `self` count.
[[nodiscard]] CarryingCost carrying_cost(const Survey& survey, WorkerId self, double processor_s);
/// The same in a sentence or two; empty if bits_a_core cannot tell.
[[nodiscard]] std::string carrying_words(const Survey& survey, const CarryingCost& cost);

/// A row for each direction, and an explanation of the columns.
[[nodiscard]] std::string link_table(const Survey& survey, const Terminal& terminal);

/// One object for the direction of `pair` from a to b (`up`), or from b to a. Values that were not
/// measured are null.
[[nodiscard]] std::string link_json(const Survey& survey, const PairMeasurement& pair, bool up);

/// The entry of a links file whose simulation gives the measured rates to long transfers. Its rates
/// are those of lines, above the measured payload. They include the effect of TCP's
/// retransmissions, which therefore do not become a `loss`. Streams and congestion control are one
/// value for both directions: the larger number, and "cubic" if either sender has not BBR.
[[nodiscard]] NotedLink noted_link(const Survey& survey, const PairMeasurement& pair);

}  // namespace isthmus::app
