// SPDX-License-Identifier: Apache-2.0
#include "core/state/state_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/state/state_pager.h"
#include "isthmus/errors.h"
#include "temporary_directory.h"

namespace isthmus::this_file {
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

class FailingSink final : public EventSink {
 public:
  void record(const Event&) override { throw SystemError("events.jsonl: no space"); }
};

class StillClock final : public Clock {
 public:
  TimePoint now() const override { return {}; }
};

/// Files of this process may not grow beyond `bytes`, without a signal.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::size_t bytes) : signal_(::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit smaller{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &smaller), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, signal_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  sighandler_t signal_;
  rlimit before_{};
};

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
  ASSERT_TRUE(until([&] { return memory_.traffic().written_bytes == array.span().size_bytes(); }));
  if (resident_bytes(array.span()) != 0) GTEST_SKIP() << kKeepsPages;

  const std::size_t half = kMany / 2;
  state_needed(array.span().first(half));
  state_await(array.span().first(half));
  EXPECT_GE(memory_.traffic().read_bytes, half * sizeof(float));
  for (std::size_t i = 0; i < kMany; ++i) ASSERT_EQ(array[i], value_of(i)) << i;
}

TEST_F(StateMemoryTest, AWalkHoldsFewWindowsAtATime) {
  const StateArray array(kMany);
  StateWalk walk(kMany, ranges_of(array.span(), StateUse::kWrite));
  constexpr std::size_t kWindow = std::size_t{8} << 20;
  std::size_t seen = 0;
  std::size_t most = 0;
  walk.run([&](std::size_t begin, std::size_t end) {
    EXPECT_EQ(begin, seen);
    for (std::size_t i = begin; i < end; ++i) array[i] = value_of(i);
    seen = end;
    // What was left has been written and dropped; the window in use and the next one are there.
    ASSERT_TRUE(until([&] { return memory_.traffic().written_bytes == begin * sizeof(float); }));
    most = std::max(most, resident_bytes(array.span()));
  });
  EXPECT_EQ(seen, kMany);
  for (std::size_t i = 0; i < kMany; ++i) ASSERT_EQ(array[i], value_of(i)) << i;
  if (most == array.span().size_bytes()) GTEST_SKIP() << kKeepsPages;
  EXPECT_LE(most, 3 * kWindow);
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
  const FileSizeLimit limit(std::size_t{4} << 20);
  EXPECT_NO_THROW(StateArray(std::size_t{1} << 20));
  try {
    const StateArray array((std::size_t{1} << 20) + 1);
    FAIL() << "it was made";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("train.offload"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("are free"), std::string::npos) << error.what();
  }
}

TEST_F(StateMemoryTest, AnArrayForOverwritingIsACopyOnceWritten) {
  const StateMemoryScope memory(nullptr);
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, kMany / 16, kMany}) {
    const StateArray array = StateArray::unfilled(size);
    ASSERT_EQ(array.size(), size);
    for (std::size_t i = 0; i < size; ++i) array[i] = value_of(i);
    const StateArray copy(array.span());
    EXPECT_TRUE(std::ranges::equal(copy.span(), array.span()));
  }
}

// A file that pages cannot be written to stands in for a disk that refuses them.
TEST(StatePagerTest, PagesThatWereNotWrittenEndEachLaterHint) {
  const TemporaryDirectory directory;
  StatePager pager({.folder = directory.path()});
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* const at =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  const int file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_GE(file, 0);
  const StatePages pages{
      .file = file, .begin = static_cast<std::byte*>(at), .bytes = kBytes, .offset = 0};
  pager.drop(pages, StateUse::kWrite);
  const auto fails = [&] {
    try {
      static_cast<void>(pager.traffic());
      return false;
    } catch (const SystemError& error) {
      EXPECT_NE(std::string(error.what()).find("train.offload"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("cannot be written"), std::string::npos);
      return true;
    }
  };
  EXPECT_TRUE(until(fails));
  EXPECT_THROW(pager.fetch(pages, StateUse::kRead), SystemError);
  EXPECT_THROW(pager.await(pages), SystemError);
  EXPECT_THROW(pager.drop(pages, StateUse::kRead), SystemError);
  pager.forget(file);
  ::close(file);
  ::munmap(at, kBytes);
}

TEST(StatePagerTest, EventsThatCannotBeWrittenAreToldToTheNextCaller) {
  const TemporaryDirectory directory;
  FailingSink events;
  const StillClock clock;
  StateMemory memory({.folder = directory.path(), .events = &events, .clock = &clock});
  const StateMemoryScope scope(&memory);
  const StateArray array(kMany);
  state_done(array.span(), StateUse::kWrite);
  EXPECT_TRUE(until([&] {
    try {
      state_await(array.span());
      return false;
    } catch (const SystemError& error) {
      return std::string(error.what()).find("events.jsonl") != std::string::npos;
    }
  }));
  EXPECT_THROW(static_cast<void>(memory.traffic()), SystemError);
}

}  // namespace
}  // namespace isthmus::this_file
