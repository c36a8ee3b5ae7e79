// SPDX-License-Identifier: Apache-2.0
// `bench collectives --inner`: the communicators between the ranks inside a site.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "app/common/commands.h"

namespace isthmus::app {

struct BenchCollectivesArguments {
  bool inner = false;
  int ranks = 0;        // 0: as many as cores, the processes of the MPI job, the GPUs
  std::string backend;  // threads, mpi, shared-memory; nccl: threads with a GPU each, values on the
                        // host; empty: all back ends of an MPI job's processes, or threads
  std::filesystem::path out;  // table of back ends, to write or to add to; empty: none
  std::filesystem::path mix;  // table to compare with each of its back ends; empty: none
  int largest_mib = 64;
  double seconds = 0.2;  // of timed calls, for each case
};

[[nodiscard]] int command_bench_collectives(const BenchCollectivesArguments& arguments,
                                            Session& session);

}  // namespace isthmus::app
