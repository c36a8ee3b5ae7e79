// SPDX-License-Identifier: Apache-2.0
// A run with fewer sites than net.min_sites stands still: each site waits until enough are there
// again, for net.gather at most. Part of SiteBoard; the worker calls it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/site/site_board_state.h"

namespace isthmus::app {

class SiteStandstill {
 public:
  explicit SiteStandstill(SiteBoardState& all) : all_(all) {}

  /// Whether this site stands still.
  [[nodiscard]] bool stands() const { return stands_with_.has_value(); }
  /// Too few are there to begin step t: tells so once, and blocks for a moment, or until the run
  /// goes on. THROWS: Error when nobody has come back for too long.
  void wait(StepIndex t);
  /// The run goes on.
  void end();

 private:
  /// For people.
  [[nodiscard]] std::string too_few() const;

  SiteBoardState& all_;
  std::optional<std::vector<bool>> stands_with_;  // who was there when that was last told of
  std::optional<TimePoint> stop_asked_;           // by a signal, while this site stands
  TimePoint since_;                               // or since somebody was last taken in
};

}  // namespace isthmus::app
