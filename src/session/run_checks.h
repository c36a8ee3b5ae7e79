// SPDX-License-Identifier: Apache-2.0
// Checks of the configuration for any trainer's run, before anything is written.
#pragma once

#include <optional>

#include "isthmus/config.h"
#include "session/run/site_arguments.h"

namespace isthmus::app {

struct RunPlace {
  bool simulated = false;             // in virtual time
  bool emulated = false;              // in real time, over the declared links
  std::optional<SiteArguments> site;  // this process is one site
};

/// THROWS: ConfigError naming the key that does not fit the place of the run.
void check_run(const Config& config, const RunPlace& place);

}  // namespace isthmus::app
