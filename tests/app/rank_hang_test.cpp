// SPDX-License-Identifier: Apache-2.0
#include "app/train/rank_hang.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace isthmus::app::this_file {
namespace {

TEST(RankHangDeathTest, EndsAProcessWhoseThreadsDoNot) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto hang = [](bool json) {
    if (json) ::dup2(STDERR_FILENO, STDOUT_FILENO);  // what a death test sees
    std::mutex mutex;
    std::condition_variable never;
    const std::jthread stuck([&] {
      std::unique_lock lock(mutex);
      never.wait(lock, [] { return false; });
    });
    end_hanging_process("the mesh has lost ranks: rank 3", json);
  };
  EXPECT_EXIT(hang(false), testing::ExitedWithCode(5), "error: the mesh has lost ranks: rank 3");
  EXPECT_EXIT(hang(true), testing::ExitedWithCode(5),
              "\"exit\":5,\"message\":\"the mesh has lost ranks: rank 3\"");
}

}  // namespace
}  // namespace isthmus::app::this_file
