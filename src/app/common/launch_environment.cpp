// SPDX-License-Identifier: Apache-2.0
#include "app/common/launch_environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "isthmus/errors.h"
#include "transport/links/mpi_transport.h"

namespace isthmus::app {
namespace {

struct Starter {
  const char* by;
  const char* rank;
  const char* size;  // null: it does not say
  const char* here;  // how many of them run on this machine
};
// The outermost starter is asked last: a batch script's own rank is in the environment of all
// processes that mpirun or torchrun starts there.
constexpr Starter kStarters[] = {
    {"isthmus", "ISTHMUS_RANK", "ISTHMUS_SIZE", nullptr},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", nullptr},
    {"Kubernetes", "JOB_COMPLETION_INDEX", nullptr, nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", nullptr}};

/// Slurm counts nodes, not neighbours.
constexpr const char* kSlurmNodes = "SLURM_STEP_NUM_NODES";

int number(const char* variable, const std::string& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw ConfigError(fmt::format(
        "environment variable {} = '{}': must be a whole number from 0; unset it, or name the site "
        "with --site",
        variable, text));
  }
  return value;
}

}  // namespace

Lookup environment() {
  return [](const char* variable) -> std::optional<std::string> {
    const char* value = std::getenv(variable);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

bool under_mpi(const Lookup& look) {
  const auto several = [&](const char* variable) {
    const std::optional<std::string> size = look(variable);
    return size && std::atoi(size->c_str()) > 1;
  };
  const bool pmix = look("PMIX_RANK") && several("SLURM_NTASKS");
  return !mpi_version().empty() && (pmix || several("OMPI_COMM_WORLD_SIZE") || several("PMI_SIZE"));
}

std::optional<LaunchEnvironment> find_launch_environment(const Lookup& look) {
  for (const Starter& starter : kStarters) {
    const auto rank = look(starter.rank);
    if (!rank) continue;
    LaunchEnvironment found{.by = starter.by,
                            .variable = starter.rank,
                            .rank = number(starter.rank, *rank),
                            .size = {},
                            .here = {}};
    if (starter.size != nullptr) {
      if (const auto size = look(starter.size)) found.size = number(starter.size, *size);
    }
    if (starter.here != nullptr) {
      if (const auto here = look(starter.here)) found.here = number(starter.here, *here);
    } else if (found.by == "Slurm" && look(kSlurmNodes) == "1") {
      found.here = found.size;
    }
    if (found.size && found.rank >= *found.size) {
      throw ConfigError(fmt::format(
          "environment variables {} = {} and {} = {}: the number of a process must be below the "
          "number of processes; unset both, or name the site with --site",
          starter.rank, found.rank, starter.size, *found.size));
    }
    return found;
  }
  return std::nullopt;
}

std::string site_of_environment(const Config& config, const Lookup& look) {
  const auto found = find_launch_environment(look);
  if (!found) {
    std::string variables;
    for (const Starter& starter : kStarters) {
      variables += fmt::format("{}{}", variables.empty() ? "" : ", ", starter.rank);
    }
    throw ConfigError(fmt::format(
        "--site auto: nothing says which of several processes this is (looked for {}): name the "
        "site",
        variables));
  }
  const int sites = config.workers();
  if (found->size.value_or(sites) != sites || found->rank >= sites) {
    throw ConfigError(
        fmt::format("--site auto: {} has started {}this one as number {}, and {} has {} sites: "
                    "start one process "
                    "a site",
                    found->by, found->size ? fmt::format("{} processes and ", *found->size) : "",
                    found->rank, config.file.string(), sites));
  }
  return config.sites[static_cast<std::size_t>(found->rank)].name;
}

}  // namespace isthmus::app
