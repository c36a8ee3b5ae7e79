// SPDX-License-Identifier: Apache-2.0
// The log of a hub's merges: what was written is read, whatever was cut off at its end; damage and
// another session are told apart.
#include "session/hub/merge_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "isthmus/errors.h"

namespace isthmus::app::this_file {
namespace {

using ::testing::HasSubstr;

class MergeLogTest : public ::testing::Test {
 protected:
  MergeLogTest() { std::filesystem::create_directories(folder_); }
  ~MergeLogTest() override { std::filesystem::remove_all(folder_); }

  static std::vector<std::byte> body(int number) {
    return std::vector<std::byte>(static_cast<std::size_t>(number) * 7, std::byte{9});
  }
  [[nodiscard]] std::filesystem::path file() const { return folder_ / "merges.log"; }
  void write(const std::string& session, int first, int last) {
    MergeLog log(storage_, folder_, session);
    for (int n = first; n <= last; ++n) log.append(n, body(n));
  }

  SystemStorage storage_;
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(MergeLogTest, WhatWasMergedIsReadAgain) {
  write("s1", 5, 7);  // of a run that goes on from a checkpoint
  write("s1", 8, 9);
  const MergeLog log(storage_, folder_, "s1");
  EXPECT_EQ(log.first(), 5);
  EXPECT_EQ(log.last(), 9);
  for (int n = 5; n <= 9; ++n) EXPECT_EQ(log.read(n), body(n)) << n;
}

TEST_F(MergeLogTest, AnotherSessionBeginsEmpty) {
  write("s1", 1, 3);
  MergeLog log(storage_, folder_, "s1");
  log.begin("s2");
  EXPECT_EQ(log.last(), 0);
  log.append(4, body(4));
  EXPECT_EQ(MergeLog(storage_, folder_, "s2").last(), 4);
  EXPECT_EQ(MergeLog(storage_, folder_, "s3").last(), 0) << "which had merged nothing";
}

TEST_F(MergeLogTest, ATailThatWasCutOffWasNeverWritten) {
  write("s1", 1, 3);
  const std::vector<std::byte> whole = storage_.read(file());
  const std::size_t two = read_merge_log(whole)->bodies[1].first + body(2).size();
  for (std::size_t size = two; size < whole.size(); ++size) {
    write_atomically(storage_, file(), std::span(whole).first(size));
    EXPECT_EQ(MergeLog(storage_, folder_, "s1").last(), 2) << size;
  }
  std::vector<std::byte> grown(whole);
  grown.resize(whole.size() + 100);
  write_atomically(storage_, file(), std::span<const std::byte>(grown));
  {
    MergeLog log(storage_, folder_, "s1");
    EXPECT_EQ(log.last(), 3) << "the file had grown, its bytes had not been written";
    log.append(4, body(4));
  }
  EXPECT_EQ(MergeLog(storage_, folder_, "s1").read(4), body(4));
}

TEST_F(MergeLogTest, DamageIsNamedWithItsPlace) {
  write("s1", 1, 3);
  const std::vector<std::byte> whole = storage_.read(file());
  const MergeLogPlaces places = read_merge_log(whole).value();
  // A last body that does not fit its sum was not written to its end.
  const std::size_t last_sum = places.bodies[2].first - 4;
  for (std::size_t at = 0; at < last_sum; ++at) {
    std::vector<std::byte> changed(whole);
    changed[at] ^= std::byte{0x10};
    write_atomically(storage_, file(), std::span<const std::byte>(changed));
    const bool of_session = at >= 16 && at < 18;  // another one's log
    try {
      EXPECT_EQ(MergeLog(storage_, folder_, "s1").last(), 0) << at;
      EXPECT_TRUE(of_session) << at;
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), HasSubstr("merges.log: at byte ")) << at;
      EXPECT_FALSE(of_session) << at;
    }
  }
}

TEST_F(MergeLogTest, NothingFollowsAWriteThatFailed) {
  MergeLog log(storage_, folder_, "");
  EXPECT_THROW(log.append(1, body(1)), SystemError) << "no session has begun";
}

}  // namespace
}  // namespace isthmus::app::this_file
