// SPDX-License-Identifier: Apache-2.0
#include "app/rank_communicators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/storage.h"
#include "isthmus/errors.h"
#include "transport/mpi_communicator.h"
#include "transport/shared_memory_communicator.h"

namespace isthmus::app {

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

}  // namespace isthmus::app
