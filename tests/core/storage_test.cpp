// SPDX-License-Identifier: Apache-2.0
#include "core/base/storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"
#include "storage_faults.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& act) { return message_of<SystemError>(act); }

TEST(SystemStorage, WritesReadsMapsAndLists) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  storage.create_directories(directory / "a/b");
  write_atomically(storage, directory / "a/b/two", "second");
  write_atomically(storage, directory / "a/b/one", "first");
  EXPECT_EQ(read_text(storage, directory / "a/b/one"), "first");
  EXPECT_EQ(as_text(storage.map(directory / "a/b/two").bytes()), "second");
  EXPECT_THAT(storage.list(directory / "a/b"), ElementsAre("one", "two"));
  EXPECT_EQ(storage.kind(directory / "a"), FileKind::kDirectory);
  EXPECT_EQ(storage.kind(directory / "a/b/one"), FileKind::kFile);
  EXPECT_EQ(storage.kind(directory / "a/b/one/x"), FileKind::kAbsent);
  storage.append(directory / "a/b/one")->append(as_bytes(" and more"));
  EXPECT_EQ(read_text(storage, directory / "a/b/one"), "first and more");
}

TEST(SystemStorage, ReadsAndMapsAnEmptyFile) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  write_atomically(storage, directory / "empty", "");
  EXPECT_TRUE(storage.map(directory / "empty").bytes().empty());
  EXPECT_TRUE(storage.read(directory / "empty").empty());
}

TEST(SystemStorage, NamesPathCauseAndRemedyOfWhatItCannotRead) {
  const TemporaryDirectory directory;
  const SystemStorage storage;
  const auto missing = directory / "missing";
  for (const std::string& text : {error_of([&] { (void)storage.map(missing); }),
                                  error_of([&] { (void)storage.read(missing); })}) {
    EXPECT_THAT(text, AllOf(HasSubstr(missing.string()), HasSubstr("No such file"),
                            HasSubstr("check the spelling")));
  }
  EXPECT_THAT(error_of([&] { (void)storage.read(directory.path()); }),
              AllOf(HasSubstr("Is a directory"), HasSubstr("name a file")));
  EXPECT_THAT(error_of([&] { (void)storage.list(missing); }), HasSubstr("cannot list"));
}

TEST(SystemStorage, RefusesAPipeInsteadOfWaitingForAWriter) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  const SystemStorage storage;
  EXPECT_THAT(error_of([&] { (void)storage.map(directory / "pipe"); }),
              HasSubstr("not a regular file"));
}

TEST(SystemStorage, ReportsAFullDisk) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  SystemStorage storage;
  EXPECT_THAT(error_of([&] { storage.append("/dev/full")->append(as_bytes("x")); }),
              AllOf(HasSubstr("/dev/full"), HasSubstr("No space left"), HasSubstr("free space")));
}

TEST(SystemStorage, NamesWhatItCannotWrite) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  EXPECT_THAT(error_of([&] { write_atomically(storage, directory / "no/such/x", "1"); }),
              AllOf(HasSubstr("cannot write"), HasSubstr("No such file")));
  write_atomically(storage, directory / "file", "1");
  EXPECT_THAT(error_of([&] { storage.create_directories(directory / "file/sub"); }),
              HasSubstr("Not a directory"));
}

TEST(WriteAtomically, KeepsTheOldBytesAndLeavesNoTemporaryWhenTheDiskIsFull) {
  const TemporaryDirectory directory;
  SystemStorage disk;
  write_atomically(disk, directory / "f", "old");
  FaultyStorage storage(disk, {.disk_full_after_bytes = 5});
  EXPECT_THAT(error_of([&] { write_atomically(storage, directory / "f", "longer than five"); }),
              HasSubstr("No space left"));
  EXPECT_EQ(read_text(disk, directory / "f"), "old");
  EXPECT_THAT(disk.list(directory.path()), ElementsAre("f"));
}

TEST(WriteAtomically, LeavesOldOrNewBytesAfterADeathAtAnyOperation) {
  bool finished = false;
  for (std::int64_t at = 0; !finished; ++at) {
    const TemporaryDirectory directory;
    SystemStorage disk;
    write_atomically(disk, directory / "f", "old");
    FaultyStorage storage(disk, {.crash_at_operation = at});
    try {
      write_atomically(storage, directory / "f", "new");
      finished = true;
      EXPECT_EQ(at, 5) << "create, append, sync, rename, sync directory";
    } catch (const SimulatedCrash& crash) {
      EXPECT_EQ(crash.operation, at);
    }
    const std::string found = read_text(disk, directory / "f");
    EXPECT_EQ(found, at < 4 ? "old" : "new") << "death at operation " << at;
  }
}

TEST(FaultyStorage, CutsUnsyncedBytesAtADeath) {
  const TemporaryDirectory directory;
  SystemStorage disk;
  FaultyStorage storage(disk, {.crash_at_operation = 4});
  const auto file = storage.create(directory / "f");
  file->append(as_bytes("synced"));
  file->sync();
  file->append(as_bytes("not synced"));
  EXPECT_THROW(storage.remove(directory / "f"), SimulatedCrash);
  EXPECT_THROW(file->append(as_bytes("after death")), SimulatedCrash);
  EXPECT_EQ(read_text(disk, directory / "f"), "synced");
}

TEST(ReplaceLink, PointsAnExistingLinkElsewhereEvenOverALeftover) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  storage.create_link("nowhere", temporary_beside(directory / "last"));
  replace_link(storage, "one", directory / "last");
  replace_link(storage, "two", directory / "last");
  EXPECT_EQ(storage.read_link(directory / "last"), "two");
  EXPECT_THAT(storage.list(directory.path()), ElementsAre("last"));
}

TEST(ExpandPattern, MatchesWithinComponentsInSortedOrder) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  storage.create_directories(directory / "d1");
  storage.create_directories(directory / "d2");
  for (const char* name : {"d2/a.txt", "d1/b.txt", "d1/a.txt", "d1/.hidden.txt", "d1/c.bin"}) {
    write_atomically(storage, directory / name, "x");
  }
  EXPECT_THAT(expand_pattern(storage, directory / "d*/*.txt"),
              ElementsAre(directory / "d1/a.txt", directory / "d1/b.txt", directory / "d2/a.txt"));
  EXPECT_THAT(expand_pattern(storage, directory / "d1/[bc].*"),
              ElementsAre(directory / "d1/b.txt", directory / "d1/c.bin"));
  EXPECT_THAT(expand_pattern(storage, directory / "no*"), ElementsAre());
  EXPECT_THAT(expand_pattern(storage, directory / "plain"), ElementsAre(directory / "plain"));
  EXPECT_THAT(expand_pattern(storage, directory / "d1/a.txt/*"), ElementsAre());
  EXPECT_THAT(expand_pattern(storage, "a*", directory / "d1"), ElementsAre(directory / "d1/a.txt"));
  EXPECT_THAT(expand_pattern(storage, directory / "d1/a*", "elsewhere"),
              ElementsAre(directory / "d1/a.txt"));
}

TEST(ExpandPattern, TakesTheBaseAsItIs) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  storage.create_directories(directory / "run[1]*");
  write_atomically(storage, directory / "run[1]*/a.txt", "x");
  EXPECT_THAT(expand_pattern(storage, "*.txt", directory / "run[1]*"),
              ElementsAre(directory / "run[1]*/a.txt"));
}

}  // namespace
}  // namespace isthmus::this_file
