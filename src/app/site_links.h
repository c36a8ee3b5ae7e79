// SPDX-License-Identifier: Apache-2.0
// What a configuration says about the links of one site: addresses, keys, how they are opened. For
// all that opens them: a run's sites (site_session.h) and `bench link`.
#pragma once

#include "app/commands.h"
#include "isthmus/config.h"
#include "transport/network_transport.h"

namespace isthmus::app {

/// Options of site `self`, with its key where sites have keys. THROWS: ConfigError, SystemError for
/// a key that cannot be used.
[[nodiscard]] MemberOptions link_options(const Config& config, const SiteArguments& arguments,
                                         Rank self);

/// THROWS: ConfigError for a site without HOST:PORT, or two with the same one.
void check_addresses(const Config& config);

}  // namespace isthmus::app
