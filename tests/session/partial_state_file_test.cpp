// SPDX-License-Identifier: Apache-2.0
// Pieces of a state on the disk of one that joins: what is found again, and what is not believed.
#include "session/run/partial_state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "isthmus/errors.h"
#include "record/run_directory.h"
#include "storage_faults.h"
#include "transport/random_bytes.h"

namespace isthmus::app::this_file {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class PartialStateFileTest : public ::testing::Test {
 protected:
  PartialStateFileTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~PartialStateFileTest() override { std::filesystem::remove_all(folder_); }

  /// Places of the pieces of `state` that the file has, whose bytes are right.
  std::vector<std::size_t> found(PartialStateFile& saved, std::span<const std::byte> state,
                                 const PieceTable& table) {
    std::vector<std::size_t> places;
    saved.open(table, [&](std::size_t k, std::span<const std::byte> bytes) {
      const bool right = std::ranges::equal(bytes, state.subspan(table[k].offset, table[k].bytes));
      if (right) places.push_back(k);
      return right;
    });
    std::ranges::sort(places);
    return places;
  }
  void save(std::span<const std::byte> state, const PieceTable& table,
            const std::vector<std::size_t>& pieces) {
    PartialStateFile saved(storage_, file_);
    (void)found(saved, state, table);
    for (const std::size_t k : pieces) {
      saved.add(table[k], state.subspan(table[k].offset, table[k].bytes));
    }
  }
  [[nodiscard]] std::vector<std::size_t> found(std::span<const std::byte> state,
                                               const PieceTable& table) {
    PartialStateFile saved(storage_, file_);
    return found(saved, state, table);
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / "saved_pieces_test";
  const std::filesystem::path file_ = folder_ / "run" / PartialStateFile::kFile;
  SystemStorage disk_;
  FaultyStorage storage_{disk_, {}};  // without syncs
  const std::vector<std::byte> state_ = random_bytes(1, 9'000'000);
  const std::vector<std::uint64_t> borders_ = {24, 100'000, 8'999'990};
  const PieceTable table_ = cut_pieces(state_, borders_);  // six pieces
};

TEST_F(PartialStateFileTest, ThoseOfOneStateAreThereForTheNextProcess) {
  EXPECT_EQ(PartialStateFile(storage_, file_).summary().bytes, 0u);
  save(state_, table_, {4, 1});
  const PartialStateFile::Summary summary = PartialStateFile(storage_, file_).summary();
  EXPECT_EQ(summary.bytes, table_[4].bytes + table_[1].bytes);
  EXPECT_EQ(summary.table, xxh3_128(write_table(table_)));
  EXPECT_THAT(found(state_, table_), ElementsAre(1, 4));
  save(state_, table_, {0, 1});
  EXPECT_THAT(found(state_, table_), ElementsAre(0, 1, 4));
  EXPECT_EQ(std::filesystem::file_size(file_),
            28 + 3 * 20 + table_[0].bytes + table_[1].bytes + table_[4].bytes)
      << "each once";
  PartialStateFile(storage_, file_).remove();
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(PartialStateFileTest, OfAnotherStateWhatIsTheSameStaysAndNothingElse) {
  save(state_, table_, {0, 1, 2});
  std::vector<std::byte> other = random_bytes(2, 7);  // in front of the same: all lies elsewhere
  other.insert(other.end(), state_.begin(), state_.end());
  other[7] ^= std::byte{1};  // and its first piece is another one
  std::vector<std::uint64_t> borders = {7};
  for (const std::uint64_t border : borders_) borders.push_back(border + 7);
  const PieceTable table = cut_pieces(other, borders);
  EXPECT_THAT(found(other, table), ElementsAre(2, 3));
  EXPECT_EQ(std::filesystem::file_size(file_), 28 + 2 * 20 + table[2].bytes + table[3].bytes);
  EXPECT_EQ(PartialStateFile(storage_, file_).summary().table, xxh3_128(write_table(table)));

  const std::vector<std::byte> third = random_bytes(3, 1000);
  EXPECT_THAT(found(third, cut_pieces(third, {})), IsEmpty());
  EXPECT_EQ(std::filesystem::file_size(file_), 28u);
}

// Cut off at any length, and changed in any place of a few: what is found is right.
TEST_F(PartialStateFileTest, NothingIsBelieved) {
  const std::vector<std::byte> state = random_bytes(4, 300);
  const std::vector<std::uint64_t> borders = {100, 110};
  const PieceTable table = cut_pieces(state, borders);
  save(state, table, {0, 1, 2});
  const std::vector<std::byte> whole = storage_.read(file_);
  const auto write = [&](std::span<const std::byte> bytes) {
    std::ofstream(file_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  };
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(std::span(whole).first(length));
    const std::size_t pieces = length < 148 ? 0 : length < 178 ? 1 : 2;
    ASSERT_EQ(found(state, table).size(), pieces) << length;
    ASSERT_EQ(found(state, table).size(), pieces) << "once more, at " << length;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::vector<std::byte> changed = whole;
    changed[at] ^= std::byte{0x10};
    write(changed);
    // Of a head for another table all pieces count; else at least the one that was changed does
    // not.
    ASSERT_LE(found(state, table).size(), at >= 12 && at < 28 ? 3u : 2u) << at;
  }
}

TEST_F(PartialStateFileTest, WhoStopsReadingLeavesTheFileAsItWas) {
  save(state_, table_, {1, 4});
  const std::vector<std::byte> before = storage_.read(file_);
  struct Stop {};
  PartialStateFile saved(storage_, file_);
  EXPECT_THROW(saved.open(table_, [](std::size_t, auto) -> bool { throw Stop(); }), Stop);
  EXPECT_EQ(storage_.read(file_), before);
}

TEST_F(PartialStateFileTest, WhatAKillLeavesOfARewriteIsNoRunAndGoesToo) {
  save(state_, table_, {1});
  const std::filesystem::path half = temporary_beside(file_);
  std::ofstream(half) << "half of it";
  const std::filesystem::path run = file_.parent_path();
  EXPECT_NO_THROW(check_folder({.out = run, .existing = ExistingRun::kRefuse}));
  PartialStateFile(storage_, file_).remove();
  EXPECT_TRUE(std::filesystem::is_empty(run));
  std::ofstream(half) << "half of it";
  EXPECT_THAT(remove_run(disk_, run), IsEmpty());
}

TEST_F(PartialStateFileTest, AFullDiskIsAnError) {
  FaultyStorage full(disk_, {.disk_full_after_bytes = 5'000'000});
  PartialStateFile saved(full, file_);
  (void)found(saved, state_, table_);
  saved.add(table_[2], std::span(state_).subspan(table_[2].offset, table_[2].bytes));
  EXPECT_THROW(saved.add(table_[3], std::span(state_).subspan(table_[3].offset, table_[3].bytes)),
               SystemError);
  saved.remove();
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace isthmus::app::this_file
