// SPDX-License-Identifier: Apache-2.0
// The pages of a hub (log.http): its sites and decisions as a page, metrics and health.
#pragma once

#include <string_view>

#include "app/observe/http_server.h"
#include "session/hub/hub_board.h"

namespace isthmus::app {

/// The pages: "/", "/metrics", "/healthz"; 404 for all others.
[[nodiscard]] HttpReply hub_page(std::string_view path, const HubStatus& status);

}  // namespace isthmus::app
