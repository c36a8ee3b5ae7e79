// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, each with a device of the fake NCCL.
#include <gtest/gtest.h>

#include <latch>
#include <thread>
#include <vector>

#include "transport/collectives/nccl_backend.h"
#include "transport/collectives/thread_communicator.h"
#include "transport/communicator_world.h"
#include "transport/fake_nccl.h"

namespace isthmus::testing_support {

std::chrono::milliseconds short_deadline() { return std::chrono::seconds(2); }
int most_ranks() { return kFakeDevices; }

void run_ranks(int size, const std::function<void(Communicator&)>& body,
               std::chrono::milliseconds deadline) {
  run_fake_ranks(size, body, deadline, kLongDeadline);
}

void run_fake_ranks(int size, const std::function<void(Communicator&)>& body,
                    std::chrono::milliseconds meetings, std::chrono::milliseconds devices) {
  std::vector<std::thread> threads;
  std::latch there(size);  // a slow start is no reason to miss a meeting
  for (std::unique_ptr<Communicator>& each : make_thread_communicators(size, meetings)) {
    threads.emplace_back([&, ranks = std::move(each)]() mutable {
      const int device = kFakeDevices - 1 - ranks->rank();
      std::unique_ptr<Communicator> rank;
      there.arrive_and_wait();
      try {
        rank = make_nccl_communicator_over(fake_nccl(), std::move(ranks), device, devices);
        body(*rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "device " << device << ": " << error.what();
        if (rank) rank->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_fake_nccl_clean();
}

}  // namespace isthmus::testing_support
