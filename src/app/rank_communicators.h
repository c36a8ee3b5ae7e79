// SPDX-License-Identifier: Apache-2.0
// The back ends over which processes of one job can call one another, and tables of their times.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "transport/communicator.h"
#include "transport/mix_table.h"

namespace isthmus::app {

/// The table in `path`, for groups of `ranks` processes and what is split from them. THROWS:
/// ConfigError beginning with `label` where it has no times of such groups, or some of back ends
/// that processes do not have; SystemError naming what is wrong in the file.
[[nodiscard]] MixTable read_mix_table(const std::string& label, const std::filesystem::path& path,
                                      int ranks);
/// "mpi", "shared-memory".
[[nodiscard]] const std::vector<std::string>& process_backends();
/// One of those, over all processes. Collective.
[[nodiscard]] std::unique_ptr<Communicator> make_process_communicator(
    const std::string& backend, std::chrono::milliseconds deadline,
    const std::vector<std::string>& places = {});

}  // namespace isthmus::app
