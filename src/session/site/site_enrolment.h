// SPDX-License-Identifier: Apache-2.0
// A site that comes by an invitation asks the hub to be let in, before anything else.
#pragma once

#include <string>

#include "isthmus/config.h"
#include "isthmus/session.h"
#include "session/run/site_arguments.h"

namespace isthmus::app {

/// Uses the site's invitation where it has one: `invitation`, or keys/NAME.invite beside the file.
/// Blocks until the hub has answered, for at most net.gather. Asking again with the same key
/// changes nothing. THROWS: ConfigError where there is no hub or the site needs no invitation;
/// PeerError for one that is not for this site or run, or that the hub refuses, or when it is not
/// reached; SystemError for a key file that cannot be read; Error after a wish to stop.
void use_invitation(const Config& config, const SiteArguments& arguments,
                    const std::string& invitation, const Wishes& wishes);

}  // namespace isthmus::app
