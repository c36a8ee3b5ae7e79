// SPDX-License-Identifier: Apache-2.0
// What a process may have, from the files of made-up machines.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "app/train/memory_check.h"
#include "core/temporary_directory.h"

namespace isthmus::app::this_file {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// A machine's files below a folder.
class Machine {
 public:
  explicit Machine(std::uint64_t memory_kib, std::uint64_t swap_kib = 0) {
    write("proc/meminfo", "MemTotal:       " + std::to_string(memory_kib) +
                              " kB\nMemFree: 1 kB\nSwapTotal:      " + std::to_string(swap_kib) +
                              " kB\n");
  }
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = directory_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  [[nodiscard]] MemoryLimit limit() const { return memory_limit(directory_ / ""); }

 private:
  TemporaryDirectory directory_;
};

TEST(MemoryLimit, IsTheMachinesWithoutGroups) {
  const MemoryLimit limit = Machine(4096, 1024).limit();
  EXPECT_EQ(limit.bytes, 5 * kMiB);
  EXPECT_EQ(limit.what, "this machine has");
  EXPECT_EQ(memory_limit(TemporaryDirectory() / "").bytes, 0U);  // nothing is known
}

TEST(MemoryLimit, IsTheLowestOfTheGroupsAboveInVersion2) {
  Machine machine(64 * 1024);
  machine.write("proc/self/cgroup", "0::/a/b\n");
  machine.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(machine.limit().bytes, 64 * kMiB);
  machine.write("sys/fs/cgroup/a/memory.max", "16777216\n");
  EXPECT_EQ(machine.limit().bytes, 16 * kMiB);
  EXPECT_EQ(machine.limit().what, "control group /a allows");
  machine.write("sys/fs/cgroup/a/b/memory.max", "8388608\n");
  EXPECT_EQ(machine.limit().bytes, 8 * kMiB);
  machine.write("sys/fs/cgroup/a/b/memory.max", "83886080\n");  // above what there is
  EXPECT_EQ(machine.limit().bytes, 16 * kMiB);
}

TEST(MemoryLimit, OfAContainerIsThatOfItsRoot) {
  Machine machine(64 * 1024);
  machine.write("proc/self/cgroup", "0::/\n");
  machine.write("sys/fs/cgroup/memory.max", "33554432\n");
  EXPECT_EQ(machine.limit().bytes, 32 * kMiB);
  machine.write("proc/self/cgroup", "0::/../../other\n");  // outside of what is seen here
  EXPECT_EQ(machine.limit().bytes, 64 * kMiB);
}

TEST(MemoryLimit, CountsTheSwapThatAGroupMayHave) {
  Machine machine(64 * 1024, 4 * 1024);
  machine.write("proc/self/cgroup", "0::/a\n");
  machine.write("sys/fs/cgroup/a/memory.max", "33554432\n");
  EXPECT_EQ(machine.limit().bytes, 36 * kMiB);
  machine.write("sys/fs/cgroup/a/memory.swap.max", "1048576\n");
  EXPECT_EQ(machine.limit().bytes, 33 * kMiB);
}

TEST(MemoryLimit, OfVersion1IsTheHierarchysSum) {
  Machine machine(64 * 1024, 4 * 1024);
  machine.write("proc/self/cgroup", "9:cpu:/x\n4:memory:/a/b\n0::/\n");
  machine.write("sys/fs/cgroup/memory/a/b/memory.stat",
                "cache 1\nhierarchical_memory_limit 33554432\nhierarchical_memsw_limit "
                "9223372036854771712\n");
  EXPECT_EQ(machine.limit().bytes, 36 * kMiB);
  EXPECT_EQ(machine.limit().what, "control group /a/b allows");
  machine.write("sys/fs/cgroup/memory/a/b/memory.stat",
                "hierarchical_memory_limit 33554432\nhierarchical_memsw_limit 34603008\n");
  EXPECT_EQ(machine.limit().bytes, 33 * kMiB);
  machine.write("sys/fs/cgroup/memory/a/b/memory.stat",
                "hierarchical_memory_limit 9223372036854771712\n");
  EXPECT_EQ(machine.limit().bytes, 68 * kMiB);
  machine.write("proc/self/cgroup", "4:memory:/elsewhere\n");  // a container's view
  machine.write("sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 1048576\n");
  EXPECT_EQ(machine.limit().bytes, 5 * kMiB);
  machine.write("proc/self/cgroup", "4:memory:/" + std::string(5000, 'x') + "\n");
  EXPECT_EQ(machine.limit().bytes, 5 * kMiB);  // of a group that cannot be looked at: its root's
}

}  // namespace
}  // namespace isthmus::app::this_file
