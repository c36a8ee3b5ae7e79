// SPDX-License-Identifier: Apache-2.0
// A run's status as Prometheus metrics, for the page /metrics of a run and of a hub's sites.
#pragma once

#include <string>

#include "record/run_status.h"

namespace isthmus::app {

/// Prometheus' text format, version 0.0.4.
[[nodiscard]] std::string status_metrics(const RunStatus& status);

}  // namespace isthmus::app
