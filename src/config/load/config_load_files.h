// SPDX-License-Identifier: Apache-2.0
// Reads the files that a configuration names. They are read while the configuration is loaded, so
// that an error in such a file is reported together with all other errors.
#pragma once

#include "config/load/config_load_draft.h"

namespace isthmus::config {

/// link.trace: the rates of a link with a trace become the means of the trace, and its path becomes
/// absolute.
void read_link_traces(Draft& draft);

}  // namespace isthmus::config
