// SPDX-License-Identifier: Apache-2.0
// A run with fewer sites than net.min_sites pauses: each site waits until enough are present, for
// net.gather at most. Part of SiteStepCoordinator; the worker calls it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/site/site_step_state.h"

namespace isthmus::app {

class SiteStandstill {
 public:
  explicit SiteStandstill(SiteStepState& all) : all_(all) {}

  /// Whether this site pauses.
  [[nodiscard]] bool stands() const { return stands_with_.has_value(); }
  /// Too few sites are present to begin step t: reports it once, and blocks for a moment, or until
  /// the run continues. THROWS: Error at the timeout, when no site has returned.
  void wait(StepIndex t);
  /// The run continues.
  void end();

 private:
  /// For people.
  [[nodiscard]] std::string too_few() const;

  SiteStepState& all_;
  std::optional<std::vector<bool>> stands_with_;  // sites present at the last report
  std::optional<TimePoint> stop_asked_;           // by a signal, during the pause
  TimePoint since_;                               // of the pause, or of the last join
};

}  // namespace isthmus::app
