// SPDX-License-Identifier: Apache-2.0
// One GET of plain HTTP: how `isthmus status` requests a run's page.
#pragma once

#include <string>

#include "app/observe/http_address.h"
#include "app/observe/http_message.h"
#include "isthmus/expected.h"

namespace isthmus::app {

/// Blocks for at most `seconds`; reads at most 8 MiB. RETURNS: why there is no reply, in words.
[[nodiscard]] Expected<HttpReply, std::string> http_get(const HttpAddress& address,
                                                        const std::string& path, double seconds);

}  // namespace isthmus::app
