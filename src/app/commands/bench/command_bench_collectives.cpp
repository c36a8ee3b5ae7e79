// SPDX-License-Identifier: Apache-2.0
#include "app/commands/bench/command_bench_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include "app/common/launch_environment.h"
#include "app/common/text_table.h"
#include "app/train/rank_communicators.h"
#include "core/base/log.h"
#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "record/build_info.h"
#include "record/json_line.h"
#include "transport/collectives/collective_timing.h"
#include "transport/collectives/mix_timing.h"
#include "transport/collectives/mixed_communicator.h"
#include "transport/collectives/mpi_communicator.h"
#include "transport/collectives/nccl_communicator.h"
#include "transport/collectives/thread_communicator.h"
#include "transport/links/mpi_transport.h"

namespace isthmus::app {
namespace {

constexpr std::chrono::milliseconds kDeadline = std::chrono::minutes(5);
constexpr int kOperations = 7;

/// For processes: a process that is in no group of a size waits while those groups are timed, over
/// `backends` in turns.
std::chrono::milliseconds process_deadline(const CollectiveTimingOptions& options,
                                           std::size_t backends) {
  const auto calls =
      static_cast<int>(kOperations * backends * timed_sizes(options.largest_bytes).size());
  const Duration timed = calls * options.each;
  constexpr int kRoom = 4;  // sizes between those, and calls that are slower than the first
  return kDeadline + std::chrono::ceil<std::chrono::milliseconds>(kRoom * timed);
}

std::string operation_of(Operation operation) {
  return operation == Operation::kSend ? "message" : std::string(operation_name(operation));
}

/// "93 %": how near the time comes to the bound.
std::string share_of_bound(const CollectiveTiming& timing) {
  return timing.bound_us > 0 ? fmt::format("{:.0f} %", 100 * timing.bound_us / timing.call.us)
                             : "-";
}

void print(const std::vector<CollectiveTiming>& timings, Session& session) {
  if (session.json) {
    for (const CollectiveTiming& each : timings) {
      JsonLine line;
      line.add("bench", "collectives").add("operation", operation_of(each.call.operation));
      line.add("backend", each.call.backend).add("ranks", each.call.ranks);
      line.add("bytes", each.call.bytes);
      line.add("us", each.call.us).add("least_us", each.least_us);
      line.add("repetitions", each.repetitions).add("moved_bytes", each.moved_bytes);
      if (each.bound_us > 0) line.add("bound_us", each.bound_us);
      session.answer(line);
    }
    return;
  }
  TextTable table(
      {"ranks", "operation", "backend", "bytes", "us", "least us", "moved GB/s", "of bound"});
  for (const CollectiveTiming& each : timings) {
    table.add({fmt::format("{}", each.call.ranks), operation_of(each.call.operation),
               each.call.backend, fmt::format("{}", each.call.bytes),
               fmt::format("{:.1f}", each.call.us), fmt::format("{:.1f}", each.least_us),
               fmt::format("{:.1f}", static_cast<double>(each.moved_bytes) / each.call.us / 1000),
               share_of_bound(each)});
  }
  session.out.write(table.text(session.out));
}

/// Of groups of `ranks`.
void print(const std::vector<MixTiming>& timings, int ranks, Session& session) {
  if (timings.empty()) return;
  const MixTiming& worst = *std::ranges::max_element(timings, {}, &MixTiming::ratio);
  if (session.json) {
    for (const MixTiming& each : timings) {
      JsonLine line;
      line.add("bench", "mixed collectives").add("operation", operation_of(each.operation));
      line.add("ranks", ranks).add("bytes", each.bytes).add("best", each.best);
      line.add("best_us", each.best_us).add("again_us", each.again_us);
      line.add("mixed_us", each.mixed_us).add("ratio", each.ratio());
      line.add("again_ratio", each.again_ratio()).add("repetitions", each.repetitions);
      line.add("worst", &each == &worst);
      session.answer(line);
    }
    return;
  }
  TextTable table({"ranks", "operation", "bytes", "best", "us", "mixed us", "mixed / best",
                   "best again / best"});
  for (const MixTiming& each : timings) {
    table.add({fmt::format("{}", ranks), operation_of(each.operation),
               fmt::format("{}", each.bytes), each.best, fmt::format("{:.2f}", each.best_us),
               fmt::format("{:.2f}", each.mixed_us), fmt::format("{:.3f}", each.ratio()),
               fmt::format("{:.3f}", each.again_ratio())});
  }
  session.out.write(table.text(session.out));
  session.out.write(fmt::format("worst between {}: {:.3f}, {} of {} bytes\n", ranks, worst.ratio(),
                                operation_of(worst.operation), worst.bytes));
}

void write_table(const std::filesystem::path& file, int ranks,
                 const std::vector<CollectiveTiming>& timings) {
  SystemStorage storage;
  MixTable table(ranks, {});
  if (storage.kind(file) != FileKind::kAbsent) {
    const MixTable before = parse_mix_table(read_text(storage, file), file.string());
    table = MixTable(std::max(ranks, before.ranks()), before.measured());
  }
  for (const CollectiveTiming& each : timings) table.add(each.call);
  write_atomically(storage, file, table.json());
}

/// Ranks that are threads of this process; with `devices` each drives a separate GPU.
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

/// Of these ranks, over the back end that was asked for or, without one, over all that work for
/// them and their groups.
std::vector<NamedCommunicator> communicators_of(const std::string& asked, bool tells,
                                                std::chrono::milliseconds deadline) {
  std::vector<NamedCommunicator> all;
  const std::vector<std::string> names =
      asked.empty() ? process_backends() : std::vector<std::string>{asked};
  for (const std::string& name : names) {
    try {
      std::unique_ptr<Communicator> ranks = make_process_communicator(name, deadline);
      for (const int size : group_sizes(ranks->size())) {
        static_cast<void>(ranks->split(ranks->rank() / size, 0));  // has it room for those too?
      }
      all.push_back({name, std::move(ranks)});
    } catch (const SystemError& error) {  // of all ranks alike
      if (!asked.empty() || name == "mpi") throw;
      if (tells) log_warning("left out: {}", error.what());
    }
  }
  return all;
}

/// body(their groups of `size`) on the ranks that are in one when all are cut into such; the rest
/// waits. Groups run side by side, as those of a mesh do.
void in_groups(const std::vector<NamedCommunicator>& all, int size,
               const std::function<void(std::vector<NamedCommunicator> groups)>& body) {
  Communicator& first = *all.front().communicator;
  std::vector<NamedCommunicator> groups;
  for (const NamedCommunicator& each : all) {
    groups.push_back({each.name, each.communicator->split(first.rank() / size, 0)});
  }
  if (groups.front().communicator->size() == size) body(std::move(groups));
  groups.clear();
  first.barrier();
}

void try_table(const std::filesystem::path& file, int ranks, const CollectiveTimingOptions& options,
               Session& session) {
  const SystemRuntime runtime;
  const MixTable table = read_mix_table("bench collectives --mix " + file.string(), file, ranks);
  check_same_table(*make_process_communicator("mpi", kDeadline), &table);
  const auto deadline = process_deadline(options, table.backends().size() + 1);
  std::vector<NamedCommunicator> all;
  for (const std::string& name : table.backends()) {
    all.push_back({name, make_process_communicator(name, deadline)});
  }
  const bool tells = all.front().communicator->rank() == 0;
  for (const int size : group_sizes(ranks)) {
    in_groups(all, size, [&](std::vector<NamedCommunicator> groups) {
      const std::vector<MixTiming> timings =
          time_mix(std::move(groups), table, runtime.clock(), options);
      if (tells) print(timings, size, session);
    });
  }
}

/// Ranks that are the processes of this MPI job.
void bench_processes(const BenchCollectivesArguments& arguments,
                     const CollectiveTimingOptions& options, Session& session) {
  const MpiPlace place = mpi_place();
  if (arguments.ranks > 0 && arguments.ranks != place.members) {
    throw UsageError(fmt::format(
        "bench collectives: --ranks {}, but the MPI job has {} processes: mpirun -n {} isthmus …",
        arguments.ranks, place.members, arguments.ranks));
  }
  if (place.members == 1) {
    throw UsageError(
        "bench collectives: the MPI job has 1 process, and nobody to exchange with: mpirun -n R "
        "isthmus bench collectives --inner, with R from 2 on");
  }
  if (!arguments.mix.empty()) {
    try_table(arguments.mix, place.members, options, session);
    return;
  }
  const SystemRuntime runtime;
  const bool tells = place.self == WorkerId(0);
  const std::vector<NamedCommunicator> all = communicators_of(
      arguments.backend, tells, process_deadline(options, process_backends().size()));
  std::vector<CollectiveTiming> timings;
  for (const int size : group_sizes(place.members)) {
    in_groups(all, size, [&](const std::vector<NamedCommunicator>& groups) {
      std::ranges::move(time_in_turns(groups, runtime.clock(), options),
                        std::back_inserter(timings));
    });
  }
  if (tells) print(timings, session);
  if (tells && !arguments.out.empty()) {
    write_table(arguments.out, place.members, timings);
  }
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
  const bool named =
      std::ranges::find(process_backends(), arguments.backend) != process_backends().end();
  if (named || (arguments.backend.empty() && under_mpi(environment()))) {
    bench_processes(arguments, options, session);
    finish_mpi();
    return 0;
  }
  if (!arguments.mix.empty()) {
    throw UsageError(
        "bench collectives: --mix tries a table between processes: mpirun -n R isthmus bench "
        "collectives --inner --mix FILE");
  }
  const bool devices = arguments.backend == "nccl";
  int ranks = arguments.ranks;
  if (ranks <= 0) ranks = devices ? nccl_devices() : machine_info().cores;
  const std::vector<CollectiveTiming> timings = time_threads(ranks, devices, options);
  print(timings, session);
  if (!arguments.out.empty()) write_table(arguments.out, ranks, timings);
  return 0;
}

}  // namespace isthmus::app
