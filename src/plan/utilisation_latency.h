// SPDX-License-Identifier: Apache-2.0
// The utilisation simulator (plan/utilisation.h) over a link with latency: a reduction is done so
// long after its last bit has left, and keeps no other reduction off the link meanwhile. The
// published tables have none. Pure functions; any thread.
#pragma once

#include <array>
#include <optional>

#include "plan/utilisation.h"

namespace isthmus {

/// REQUIRES: as compute_utilisation without latency; latency_s >= 0.
[[nodiscard]] double compute_utilisation(const UtilisationModel& model,
                                         const UtilisationSchedule& schedule, double bits_per_s,
                                         double latency_s);

/// As bandwidth_needed without latency.
[[nodiscard]] std::array<std::optional<double>, kUtilisationTargets.size()> bandwidth_needed(
    const UtilisationModel& model, const UtilisationSchedule& schedule, double latency_s);

}  // namespace isthmus
