// SPDX-License-Identifier: Apache-2.0
// Enrolment of a site with an invitation at the hub, before anything else.
#pragma once

#include <string>

#include "isthmus/config.h"
#include "isthmus/session.h"
#include "session/run/site_arguments.h"

namespace isthmus::app {

/// Uses the site's invitation if there is one: `invitation`, or keys/NAME.invite next to the file.
/// Does nothing under MPI, for a site that the file does not have, and for one with a key in the
/// file where `invitation` is empty. Otherwise blocks until the hub has answered, for at most
/// net.gather. Repeating it with the same key has no effect. THROWS: ConfigError when there is no
/// hub or the site needs no invitation; PeerError for an invitation of another site or run, one
/// that the hub refuses, or when the hub is not reached; SystemError for an unreadable key file;
/// Error after a wish to stop.
void use_invitation(const Config& config, const SiteArguments& arguments,
                    const std::string& invitation, const Wishes& wishes);

}  // namespace isthmus::app
