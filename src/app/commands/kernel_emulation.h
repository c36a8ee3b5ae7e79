// SPDX-License-Identifier: Apache-2.0
// `simulate --emulate --kernel`: every site is a process in its own network namespace; the kernel's
// TCP connects them over a wide-area network in user space (sim/wan.h) with the declared links. The
// namespaces have no names: they end with this process and the sites' processes, which die with it.
#pragma once

#include <filesystem>

#include "app/common/commands.h"

namespace isthmus::app {

/// Blocks until the sites have ended. `links`: as in `command_simulate`, refused here. RETURNS: the
/// exit code. THROWS: UsageError and ConfigError for settings that cannot be emulated so,
/// SystemError without root, TUN devices, or the links' congestion control.
[[nodiscard]] int command_simulate_kernel(const SimulateArguments& arguments,
                                          const std::filesystem::path& links, Session& session);

}  // namespace isthmus::app
