// SPDX-License-Identifier: Apache-2.0
// parallel.communicators: the communicator between a mesh's processes within a pass.
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

/// The table in `path`, for groups of `ranks` processes and their subgroups. THROWS: ConfigError
/// beginning with `label` when it has no times for such groups, or has back ends that processes do
/// not have; SystemError naming the fault in the file.
[[nodiscard]] MixTable read_mix_table(const std::string& label, const std::filesystem::path& path,
                                      int ranks);
/// The table of parallel.communicators, if that is set and is not a name
/// (config/schema/device_request.h).
[[nodiscard]] std::optional<MixTable> read_mix_table(const Config& config, int ranks);

/// Checks that the table of parallel.communicators fits every worker's mesh. THROWS: as
/// read_mix_table.
void check_rank_communicators(const Config& config, const TrainingPlan& plan);

/// Collective over the processes of the mesh. `deadline`, `places`: as in make_mpi_communicator.
/// THROWS: as read_mix_table, and ConfigError when the ranks' tables differ.
[[nodiscard]] std::unique_ptr<Communicator> make_pass_communicator(
    const Config& config, std::chrono::milliseconds deadline,
    const std::vector<std::string>& places);

/// "mpi", "shared-memory".
[[nodiscard]] const std::vector<std::string>& process_backends();
/// One of these back ends, over all processes. Collective.
[[nodiscard]] std::unique_ptr<Communicator> make_process_communicator(
    const std::string& backend, std::chrono::milliseconds deadline,
    const std::vector<std::string>& places = {});

}  // namespace isthmus::app
