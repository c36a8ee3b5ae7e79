// SPDX-License-Identifier: Apache-2.0
// A job whose four processes are two sites of two ranks. Started by mpirun: each process runs it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/system_runtime.h"
#include "transport/collectives/mpi_communicator.h"
#include "transport/links/mpi_transport.h"

namespace isthmus::this_file {
namespace {

constexpr std::chrono::seconds kLong{30};

// The second half of the processes is site 0, so members are in another order than processes.
TEST(SplitMpiJob, GivesSitesTheirRanksAndTheirFirstsATransport) {
  SystemRuntime runtime;
  std::unique_ptr<Communicator> all = make_mpi_communicator(kLong);
  ASSERT_EQ(all->size(), 4);
  const int self = all->rank();
  const int site = self < 2 ? 1 : 0;
  split_mpi_job(site);

  std::unique_ptr<Communicator> ranks = make_mpi_communicator(kLong);
  EXPECT_EQ(ranks->size(), 2);
  EXPECT_EQ(ranks->rank(), self % 2);
  std::int64_t sum = self;
  ranks->all_reduce({&sum, 1, Dtype::kI64}, Reduce::kSum);
  EXPECT_EQ(sum, site == 1 ? 0 + 1 : 2 + 3);

  // One first has its transport before the other begins to make one: the meeting is in between.
  std::unique_ptr<NetworkTransport> transport;
  const bool first = ranks->rank() == 0;
  if (first && site == 0) transport = make_mpi_transport(runtime, kLong);
  all->barrier();
  if (first && site == 1) transport = make_mpi_transport(runtime, kLong);
  if (first) {
    EXPECT_EQ(transport->size(), 2);
    EXPECT_EQ(transport->self(), WorkerId(site));
    transport->send(WorkerId(1 - site), std::make_shared<const std::vector<std::byte>>(
                                            1, static_cast<std::byte>(self)));
    const auto frame = transport->receive(runtime.clock().now() + kLong);
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->from, WorkerId(1 - site));
    ASSERT_EQ(frame->bytes->size(), 1U);
    EXPECT_EQ((*frame->bytes)[0], static_cast<std::byte>(2 - self));
  }
  transport.reset();
  ranks.reset();
  all.reset();
  finish_mpi();
}

}  // namespace
}  // namespace isthmus::this_file
