// SPDX-License-Identifier: Apache-2.0
#include "app/train/rank_communicators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "config/schema/device_request.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/storage.h"
#include "isthmus/errors.h"
#include "transport/collectives/mixed_communicator.h"
#include "transport/collectives/mpi_communicator.h"
#include "transport/collectives/shared_memory_communicator.h"

namespace isthmus::app {
namespace {

std::string label_of(const Config& config) {
  return fmt::format("parallel.communicators = \"{}\"", config.rank_communicators.string());
}

}  // namespace

const std::vector<std::string>& process_backends() {
  static const std::vector<std::string> names = {"mpi", "shared-memory"};
  return names;
}

std::unique_ptr<Communicator> make_process_communicator(const std::string& backend,
                                                        std::chrono::milliseconds deadline,
                                                        const std::vector<std::string>& places) {
  ISTHMUS_CHECK(std::ranges::find(process_backends(), backend) != process_backends().end(),
                backend);
  std::unique_ptr<Communicator> ranks = make_mpi_communicator(deadline, places);
  return backend == "mpi" ? std::move(ranks)
                          : make_shared_memory_communicator(std::move(ranks), deadline, places);
}

MixTable read_mix_table(const std::string& label, const std::filesystem::path& path, int ranks) {
  const SystemStorage storage;
  MixTable table = parse_mix_table(read_text(storage, path), path.string());
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format(
        "{}: {}; measure it where it will be used: mpirun -n {} isthmus bench collectives --inner "
        "--out FILE",
        label, why, ranks));
  };
  for (const std::string& name : table.backends()) {
    if (std::ranges::find(process_backends(), name) == process_backends().end()) {
      refuse(fmt::format("it has times of \"{}\", ranks that are processes have {}", name,
                         fmt::join(process_backends(), ", ")));
    }
  }
  if (!table.has_times_of(ranks)) {
    refuse(fmt::format("it has no times of groups of {} ranks, as many as there are", ranks));
  }
  return table;
}

std::optional<MixTable> read_mix_table(const Config& config, int ranks) {
  if (config.rank_communicators.empty() || names_device_sums(config)) return std::nullopt;
  return read_mix_table(label_of(config), config.locate(config.rank_communicators), ranks);
}

void check_rank_communicators(const Config& config, const TrainingPlan& plan) {
  for (int m = 0; m < plan.workers; ++m) {
    const int ranks = plan.mesh(WorkerId(m)).shape.ranks();
    if (ranks > 1) (void)read_mix_table(config, ranks);
  }
}

std::unique_ptr<Communicator> make_pass_communicator(const Config& config,
                                                     std::chrono::milliseconds deadline,
                                                     const std::vector<std::string>& places) {
  std::optional<MixTable> table = read_mix_table(config, static_cast<int>(places.size()));
  std::unique_ptr<Communicator> ranks = make_mpi_communicator(deadline, places);
  try {
    check_same_table(*ranks, table ? &*table : nullptr);
    if (!table) return ranks;
    std::vector<NamedCommunicator> backends;
    for (const std::string& name : table->backends()) {
      backends.push_back({name, name == "mpi" ? std::move(ranks)
                                              : make_process_communicator(name, deadline, places)});
    }
    const std::string names = fmt::format("{}", fmt::join(table->backends(), ", "));
    std::unique_ptr<Communicator> mixed =
        make_mixed_communicator(std::move(backends), *std::move(table));
    if (mixed->rank() == 0) {
      log_info("calls between ranks go over {}, by {}", names, config.rank_communicators.string());
    }
    return mixed;
  } catch (const CommunicatorError& error) {
    throw ConfigError(fmt::format("{}: {}", label_of(config), error.what()));
  }
}

}  // namespace isthmus::app
