// SPDX-License-Identifier: Apache-2.0
// parallel.communicators: over what the processes of a mesh call one another within a pass.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/train/training_plan.h"
#include "isthmus/config.h"
#include "transport/collectives/communicator.h"
#include "transport/collectives/mix_table.h"

namespace isthmus::app {

/// The table in `path`, for groups of `ranks` processes and what is split from them. THROWS:
/// ConfigError beginning with `label` where it has no times of such groups, or some of back ends
/// that processes do not have; SystemError naming what is wrong in the file.
[[nodiscard]] MixTable read_mix_table(const std::string& label, const std::filesystem::path& path,
                                      int ranks);
/// The one of parallel.communicators, if that is set and no name (config/schema/device_request.h).
[[nodiscard]] std::optional<MixTable> read_mix_table(const Config& config, int ranks);

/// That the table of parallel.communicators fits every worker's mesh. THROWS: as read_mix_table.
void check_rank_communicators(const Config& config, const TrainingPlan& plan);

/// Collective over the processes of the mesh. `deadline`, `places`: as make_mpi_communicator has
/// them. THROWS: as read_mix_table, and ConfigError where the ranks have unlike tables.
[[nodiscard]] std::unique_ptr<Communicator> make_pass_communicator(
    const Config& config, std::chrono::milliseconds deadline,
    const std::vector<std::string>& places);

/// "mpi", "shared-memory".
[[nodiscard]] const std::vector<std::string>& process_backends();
/// One of those, over all processes. Collective.
[[nodiscard]] std::unique_ptr<Communicator> make_process_communicator(
    const std::string& backend, std::chrono::milliseconds deadline,
    const std::vector<std::string>& places = {});

}  // namespace isthmus::app
