// SPDX-License-Identifier: Apache-2.0
#include "app/command_bench_collectives.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <vector>

#include "app/build_info.h"
#include "app/json_line.h"
#include "app/text_table.h"
#include "core/storage.h"
#include "core/system_runtime.h"
#include "transport/collective_timing.h"
#include "transport/mpi_communicator.h"
#include "transport/nccl_communicator.h"
#include "transport/thread_communicator.h"

namespace isthmus::app {
namespace {

constexpr std::chrono::milliseconds kDeadline = std::chrono::minutes(5);

std::string operation_of(const MeasuredCall& call) {
  return call.operation == Operation::kSend ? "message"
                                            : std::string(operation_name(call.operation));
}

/// "93 %": how near the time comes to the bound.
std::string share_of_bound(const CollectiveTiming& timing) {
  return timing.bound_us > 0 ? fmt::format("{:.0f} %", 100 * timing.bound_us / timing.call.us)
                             : "-";
}

void print(const std::vector<CollectiveTiming>& timings, int ranks, Session& session) {
  if (session.json) {
    for (const CollectiveTiming& each : timings) {
      JsonLine line;
      line.add("bench", "collectives").add("operation", operation_of(each.call));
      line.add("backend", each.call.backend).add("ranks", ranks).add("bytes", each.call.bytes);
      line.add("us", each.call.us).add("least_us", each.least_us);
      line.add("repetitions", each.repetitions).add("moved_bytes", each.moved_bytes);
      if (each.bound_us > 0) line.add("bound_us", each.bound_us);
      session.out.write(line.str() + "\n");
    }
    return;
  }
  TextTable table({"operation", "backend", "bytes", "us", "least us", "moved GB/s", "of bound"});
  for (const CollectiveTiming& each : timings) {
    table.add({operation_of(each.call), each.call.backend, fmt::format("{}", each.call.bytes),
               fmt::format("{:.1f}", each.call.us), fmt::format("{:.1f}", each.least_us),
               fmt::format("{:.1f}", static_cast<double>(each.moved_bytes) / each.call.us / 1000),
               share_of_bound(each)});
  }
  session.out.write(table.text(session.out));
}

void write_table(const std::filesystem::path& file, int ranks,
                 const std::vector<CollectiveTiming>& timings) {
  SystemStorage storage;
  MixTable table(ranks, {});
  if (storage.kind(file) != FileKind::kAbsent) {
    table = parse_mix_table(read_text(storage, file), file.string());
    if (table.ranks() != ranks) {
      throw UsageError(fmt::format(
          "bench collectives: {} holds times of {} ranks, these are of {}; give another --out",
          file.string(), table.ranks(), ranks));
    }
  }
  for (const CollectiveTiming& each : timings) table.add(each.call);
  write_atomically(storage, file, table.json());
}

/// Ranks that are threads of this process; with `devices` each drives a GPU of its own.
std::vector<CollectiveTiming> time_threads(int size, bool devices,
                                           const CollectiveTimingOptions& options) {
  SystemRuntime runtime;
  std::vector<std::unique_ptr<Communicator>> ranks = make_thread_communicators(size, kDeadline);
  std::vector<CollectiveTiming> timings;
  std::vector<std::unique_ptr<Task>> tasks;
  for (std::unique_ptr<Communicator>& rank : ranks) {
    const int number = rank->rank();
    // Ranks give their communicators back at the same time, as NCCL wants it: in their tasks.
    tasks.push_back(runtime.spawn(fmt::format("rank {}", number), [&, number, &own_end = rank] {
      std::unique_ptr<Communicator> self = std::move(own_end);
      if (devices) self = make_nccl_communicator(std::move(self), number, kDeadline);
      try {
        std::vector<CollectiveTiming> own = time_collectives(*self, runtime.clock(), options);
        if (number == 0) timings = std::move(own);
      } catch (const std::exception& error) {
        self->abort(error.what());
        throw;
      }
    }));
  }
  for (const std::unique_ptr<Task>& task : tasks) task->join();
  return timings;
}

}  // namespace

int command_bench_collectives(const BenchCollectivesArguments& arguments, Session& session) {
  if (arguments.ranks < 0 || arguments.ranks > 256 || arguments.largest_mib < 1 ||
      arguments.largest_mib > 4096 || !(arguments.seconds > 0) || arguments.seconds > 60) {
    throw UsageError(
        "bench collectives: --ranks must be in [1, 256], --largest-mib in [1, 4096], --seconds in "
        "(0, 60]");
  }
  CollectiveTimingOptions options;
  options.largest_bytes = std::int64_t{arguments.largest_mib} << 20;
  options.each =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(arguments.seconds));
  if (arguments.backend != "mpi") {
    const bool devices = arguments.backend == "nccl";
    int ranks = arguments.ranks;
    if (ranks <= 0) ranks = devices ? nccl_devices() : machine_info().cores;
    const std::vector<CollectiveTiming> timings = time_threads(ranks, devices, options);
    print(timings, ranks, session);
    if (!arguments.out.empty()) write_table(arguments.out, ranks, timings);
    return 0;
  }
  std::unique_ptr<Communicator> all = make_mpi_communicator(kDeadline);
  if (arguments.ranks > 0 && arguments.ranks != all->size()) {
    throw UsageError(fmt::format(
        "bench collectives: --ranks {}, but the MPI job has {} processes: mpirun -n {} isthmus …",
        arguments.ranks, all->size(), arguments.ranks));
  }
  const SystemRuntime runtime;
  const std::vector<CollectiveTiming> timings = time_collectives(*all, runtime.clock(), options);
  if (all->rank() == 0) {
    print(timings, all->size(), session);
    if (!arguments.out.empty()) write_table(arguments.out, all->size(), timings);
  }
  all->barrier();
  all.reset();
  finish_mpi();
  return 0;
}

}  // namespace isthmus::app
