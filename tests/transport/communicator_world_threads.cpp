// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "transport/collectives/thread_communicator.h"
#include "transport/communicator_world.h"

namespace isthmus::testing_support {

std::chrono::milliseconds short_deadline() { return std::chrono::milliseconds(200); }
int most_ranks() { return 64; }

void run_ranks(int size, const std::function<void(Communicator&)>& body,
               std::chrono::milliseconds deadline) {
  std::vector<std::unique_ptr<Communicator>> ranks = make_thread_communicators(size, deadline);
  std::vector<std::thread> threads;
  for (std::unique_ptr<Communicator>& rank : ranks) {
    threads.emplace_back([&body, &rank, deadline] {
      const std::unique_ptr<Communicator> tested = tested_communicator(std::move(rank), deadline);
      try {
        body(*tested);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << tested->rank() << ": " << error.what();
        tested->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace isthmus::testing_support
