// SPDX-License-Identifier: Apache-2.0
// Started by mpirun: the processes run the same tests side by side. A failure in one is a failure
// of the job.
#include <gtest/gtest.h>

#include "transport/collectives/mpi_communicator.h"
#include "transport/communicator_world.h"
#include "transport/links/mpi_transport.h"

namespace isthmus::testing_support {
namespace {

/// Of all processes, made at the first use; waits long, since others may still be in the body
/// before.
std::unique_ptr<Communicator> all;
std::unique_ptr<Communicator>& everybody() {
  if (!all) all = make_mpi_communicator(kLongDeadline);
  return all;
}

class MpiEnd final : public ::testing::Environment {
 public:
  void TearDown() override {
    if (!all) return;  // the tests of mpi_job_test.cpp end MPI themselves
    all.reset();
    finish_mpi();
  }
};
const auto* const mpi_end = ::testing::AddGlobalTestEnvironment(new MpiEnd);

}  // namespace

std::chrono::milliseconds short_deadline() { return std::chrono::milliseconds(200); }
int most_ranks() { return mpi_place().members; }

void run_ranks(int size, const std::function<void(Communicator&)>& body,
               std::chrono::milliseconds deadline) {
  everybody()->barrier();
  const std::unique_ptr<Communicator> world =
      tested_communicator(make_mpi_communicator(deadline), deadline);
  const bool takes_part = world->rank() < size;
  const std::unique_ptr<Communicator> ranks = world->split(takes_part ? 0 : 1, 0);
  everybody()->barrier();  // an abort in the body must not overtake what makes its communicators
  if (takes_part) {
    try {
      body(*ranks);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << ranks->rank() << ": " << error.what();
      ranks->abort(error.what());
    }
  }
}

}  // namespace isthmus::testing_support
