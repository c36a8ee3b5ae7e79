// SPDX-License-Identifier: Apache-2.0
#include "core/state_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "isthmus/errors.h"
#include "temporary_directory.h"

namespace isthmus {
namespace {

constexpr std::size_t kMany = std::size_t{12} << 20;  // values: 48 MiB, several windows of a walk

float value_of(std::size_t i) { return static_cast<float>(i % 1'000'003) - 17.0f; }

std::size_t resident_bytes(std::span<const float> values) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> flags((values.size_bytes() + page - 1) / page);
  EXPECT_EQ(::mincore(const_cast<float*>(values.data()), values.size_bytes(), flags.data()), 0);
  return page * static_cast<std::size_t>(
                    std::ranges::count_if(flags, [](auto flag) { return (flag & 1) != 0; }));
}

/// Waits for the pager, which nothing else tells of. RETURNS: whether it came.
template <typename Condition>
bool until(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

constexpr const char* kKeepsPages =
    "this file system (tmpfs, overlay) does not drop pages when asked";

class StateMemoryTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  StateMemory memory_{{.folder = directory_.path() / "state"}};
  StateMemoryScope scope_{&memory_};
};

TEST_F(StateMemoryTest, FilesHaveNoNamesInAFolderOfTheOwners) {
  const StateArray array(kMany);
  ASSERT_TRUE(array.in_file());
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path() / "state"));
  struct stat status {};
  ASSERT_EQ(::stat((directory_.path() / "state").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(StateMemoryTest, SmallArraysAndThoseOfNoScopeLieInMemory) {
  EXPECT_FALSE(StateArray(1000).in_file());
  std::thread([] { EXPECT_FALSE(StateArray(kMany).in_file()); }).join();
}

TEST_F(StateMemoryTest, ValuesOutliveBeingDroppedAndReadAgain) {
  const StateArray array(kMany);
  EXPECT_TRUE(std::ranges::all_of(array.span(), [](float v) { return v == 0; }));
  for (std::size_t i = 0; i < kMany; ++i) array[i] = value_of(i);
  state_done(array.span(), StateUse::kWrite);
  if (!until([&] { return resident_bytes(array.span()) == 0; })) GTEST_SKIP() << kKeepsPages;
  EXPECT_EQ(memory_.traffic().written_bytes, array.span().size_bytes());

  const std::size_t half = kMany / 2;
  state_needed(array.span().first(half));
  state_await(array.span().first(half));
  EXPECT_GE(memory_.traffic().read_bytes, half * sizeof(float));
  for (std::size_t i = 0; i < kMany; ++i) ASSERT_EQ(array[i], value_of(i)) << i;
}

TEST_F(StateMemoryTest, AWalkHoldsFewWindowsAtATime) {
  const StateArray array(kMany);
  StateWalk walk(kMany, ranges_of(array.span(), StateUse::kWrite));
  std::size_t seen = 0;
  bool drops = true;
  walk.run([&](std::size_t begin, std::size_t end) {
    EXPECT_EQ(begin, seen);
    for (std::size_t i = begin; i < end; ++i) array[i] = value_of(i);
    seen = end;
    // What was left is dropped before long; the window in use and the next one are there.
    if (!until([&] { return resident_bytes(array.span()) <= 3 * (std::size_t{8} << 20); })) {
      drops = false;
    }
  });
  if (!drops) GTEST_SKIP() << kKeepsPages;
  EXPECT_EQ(seen, kMany);
  for (std::size_t i = 0; i < kMany; ++i) ASSERT_EQ(array[i], value_of(i)) << i;
}

TEST_F(StateMemoryTest, AnArrayIsZeroedInItsFile) {
  StateArray array(kMany);
  std::ranges::fill(array.span(), 3.0f);
  array.fill_zero();
  EXPECT_TRUE(std::ranges::all_of(array.span(), [](float v) { return v == 0; }));
  std::ranges::fill(array.span(), 4.0f);  // the pages can be written again
  const StateArray copy(array.span());
  EXPECT_TRUE(copy.in_file());
  EXPECT_TRUE(std::ranges::equal(copy.span(), array.span()));
}

TEST_F(StateMemoryTest, AnArrayMayGoWhileItsPagesAreOnTheirWay) {
  for (int i = 0; i < 8; ++i) {
    StateArray array(kMany / 4);
    std::ranges::fill(array.span(), 1.0f);
    state_done(array.span(), StateUse::kWrite);
    state_needed(array.span().first(array.size() / 2));
    StateArray moved = std::move(array);
    EXPECT_EQ(moved[0], 1.0f);
  }
  EXPECT_FALSE(state_in_file(std::vector<float>(kMany)));
}

TEST_F(StateMemoryTest, AnArrayThatDoesNotFitIsRefusedWithItsBytes) {
  try {
    const StateArray array(std::size_t{1} << 44);  // beyond what a file system has files for
    FAIL() << "it was made";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("train.offload"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("are free"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace isthmus
