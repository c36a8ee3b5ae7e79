// SPDX-License-Identifier: Apache-2.0
// cells.jsonl survives whatever ends the program: what was added is there, what was torn is not.
#include "app/compare/cell_store.h"

#include <gtest/gtest.h>

#include "core/temporary_directory.h"
#include "storage_faults.h"

namespace isthmus::app::this_file {
namespace {

report::CellResult cell(int number) {
  return {.key = "key-" + std::to_string(number),
          .variant = "ddp",
          .method = "ddp",
          .seed = number,
          .evals = {{10, 2.5 + number, 1, 2, 3}},
          .directory = "ddp/seed-" + std::to_string(number)};
}

class CellStoreTest : public testing::Test {
 protected:
  TemporaryDirectory folder;
  SystemStorage disk;
  std::filesystem::path file = folder / "cells.jsonl";
};

TEST_F(CellStoreTest, KeepsWhatWasAddedBefore) {
  {
    CellStore store(disk, file);
    EXPECT_EQ(store.find("key-1"), nullptr);
    store.add(cell(1));
    store.add(cell(2));
  }
  const CellStore again(disk, file);
  ASSERT_NE(again.find("key-2"), nullptr);
  EXPECT_EQ(again.find("key-2")->final_loss(), 4.5);
  EXPECT_EQ(again.find("key-3"), nullptr);
  EXPECT_EQ(again.damaged(), 0U);
}

TEST_F(CellStoreTest, CutsATornLineOutAndGoesOn) {
  const std::string line = report::cell_line(cell(1)) + "\n";
  for (const std::size_t torn : {std::size_t{1}, line.size() / 2, line.size() - 1}) {
    write_atomically(disk, file, line + report::cell_line(cell(2)).substr(0, torn));
    {
      CellStore store(disk, file);
      EXPECT_EQ(store.damaged(), 1U);
      EXPECT_NE(store.find("key-1"), nullptr);
      EXPECT_EQ(store.find("key-2"), nullptr);
      store.add(cell(3));
    }
    EXPECT_EQ(read_text(disk, file), line + report::cell_line(cell(3)) + "\n");
  }
}

TEST_F(CellStoreTest, OfTwoLinesWithOneKeyTheLaterHolds) {
  report::CellResult later = cell(1);
  later.evals[0].loss = 1;
  write_atomically(disk, file, report::cell_line(cell(1)) + "\n" + report::cell_line(later) + "\n");
  EXPECT_EQ(CellStore(disk, file).find("key-1")->final_loss(), 1);
}

// Dies before each operation in turn, as a power failure would: unsynced bytes are lost.
TEST_F(CellStoreTest, WhateverWasAddedOutlivesADeathAtAnyMoment) {
  for (std::int64_t operation = 0;; ++operation) {
    std::filesystem::remove(file);
    std::vector<int> added;
    bool died = false;
    {
      FaultyStorage storage(disk, {.crash_at_operation = operation});
      try {
        CellStore store(storage, file);
        for (int i = 1; i <= 3; ++i) {
          store.add(cell(i));
          added.push_back(i);
        }
      } catch (const SimulatedCrash&) {
        died = true;
      }
    }
    CellStore again(disk, file);
    for (const int i : added) {
      EXPECT_NE(again.find("key-" + std::to_string(i)), nullptr) << operation;
    }
    again.add(cell(9));
    EXPECT_NE(CellStore(disk, file).find("key-9"), nullptr);
    if (!died) {
      EXPECT_EQ(added.size(), 3U);
      break;
    }
  }
}

}  // namespace
}  // namespace isthmus::app::this_file
