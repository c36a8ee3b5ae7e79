// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, each with a GPU of this machine; two at most, whose sums have the bits of the
// plain loop in any order. Two ranks share one device where NCCL allows that (2.30, by request).
#include <gtest/gtest.h>
#include <stdlib.h>

#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "isthmus/errors.h"
#include "transport/collectives/nccl_calls.h"
#include "transport/collectives/nccl_communicator.h"
#include "transport/collectives/thread_communicator.h"
#include "transport/communicator_world.h"

namespace isthmus::testing_support {
namespace {

constexpr int kShares = NCCL_VERSION(2, 30, 3);

struct Machine {
  int devices = 0;
  int ranks = 0;
  std::string why;  // there are none
};

Machine look() {
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  setenv("NCCL_MAX_CTAS", "2", 0);  // kernels of two ranks have to fit beside each other
  Machine machine;
  try {
    const NcclCalls& calls = system_nccl_calls();
    int version = 0;
    (void)calls.get_version(&version);
    (void)calls.get_device_count(&machine.devices);
    machine.ranks = machine.devices == 1 && version < kShares ? 1 : 2;
  } catch (const SystemError& error) {
    machine.why = error.what();
  }
  return machine;
}

const Machine& machine() {
  static const Machine the = look();
  return the;
}

TEST(NcclDevice, IsThere) {
  if (!machine().why.empty()) GTEST_SKIP() << machine().why;
  EXPECT_GE(machine().ranks, 1);
}

}  // namespace

std::chrono::milliseconds short_deadline() { return std::chrono::seconds(2); }
int most_ranks() { return machine().ranks; }

void run_ranks(int size, const std::function<void(Communicator&)>& body,
               std::chrono::milliseconds deadline) {
  // The deadline is that of the ranks' meetings: starting NCCL takes seconds.
  std::vector<std::thread> threads;
  std::latch there(size);  // a slow start is no reason to miss a meeting
  for (std::unique_ptr<Communicator>& each : make_thread_communicators(size, deadline)) {
    threads.emplace_back([&body, &there, ranks = std::move(each)]() mutable {
      const int device = ranks->rank() % machine().devices;
      std::unique_ptr<Communicator> rank;
      (void)system_nccl_calls().set_device(device);  // starts CUDA there
      there.arrive_and_wait();
      try {
        rank = make_nccl_communicator(std::move(ranks), device, kLongDeadline);
        body(*rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "device " << device << ": " << error.what();
        if (rank) rank->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace isthmus::testing_support
