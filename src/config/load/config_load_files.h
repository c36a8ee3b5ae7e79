// SPDX-License-Identifier: Apache-2.0
// Reads the files that a configuration names. They are read while the configuration is loaded, so
// that an error in such a file is reported together with all other errors.
#pragma once

#include "config/load/config_load_draft.h"

namespace isthmus::config {

/// net.table: `config.net.ways` become the entries of the ways file, and its path becomes absolute.
void read_shares_table(Draft& draft);

/// link.trace: the rates of a link with a trace become the means of the trace, and its path becomes
/// absolute.
void read_link_traces(Draft& draft);

}  // namespace isthmus::config
