// SPDX-License-Identifier: Apache-2.0
// Free TCP ports of loopback.
#pragma once

#include <cstddef>
#include <vector>

namespace isthmus::app {

/// `count` different ports; another program may take one before it is used. THROWS: SystemError
/// when the machine refuses.
[[nodiscard]] std::vector<int> free_loopback_ports(std::size_t count);

}  // namespace isthmus::app
