// SPDX-License-Identifier: Apache-2.0
// What is on the disk of the results of rounds, and what is told where it is not.
#include "transport/retained_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/storage_faults.h"

namespace isthmus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kMembers = 2;

SyncId id_of(std::int64_t sent) { return {FragmentId(0), StepIndex(sent)}; }

Reduced result_of(std::vector<float> values) {
  return {.values = std::move(values), .contributors = {Rank(0), Rank(1)}, .contributions = {}};
}

class RetainedResultsTest : public testing::Test {
 protected:
  RetainedResultsTest() { disk_.remove_all(file_); }
  static std::string why_not(RetainedResults& results, std::int64_t sent) {
    const auto read = results.read(id_of(sent), kMembers);
    return read ? "it is there" : read.error();
  }
  [[nodiscard]] bool exists() const { return disk_.kind(file_) != FileKind::kAbsent; }

  SystemStorage disk_;
  const std::filesystem::path file_ =
      std::filesystem::path(testing::TempDir()) / "retained_results_test";
};

TEST_F(RetainedResultsTest, AreReadAsTheyWereGivenInAnyOrderAndGoInTheEnd) {
  {
    RetainedResults results(disk_, file_, 1000);
    EXPECT_FALSE(exists());
    results.keep(id_of(3), result_of({1, 2}), {});
    results.keep(id_of(6), result_of({3, 4}), {});
    EXPECT_THAT(results.read(id_of(6), kMembers)->reduced.values, ElementsAre(3, 4));
    results.keep(id_of(9), result_of({5, 6}), {});
    EXPECT_THAT(results.read(id_of(3), kMembers)->reduced.values, ElementsAre(1, 2));
    EXPECT_THAT(results.read(id_of(9), kMembers)->reduced.values, ElementsAre(5, 6));
    EXPECT_EQ(results.lack(), std::nullopt);
  }
  EXPECT_FALSE(exists());
}

TEST_F(RetainedResultsTest, OnesThatHaveBeenTakenBackAreThoseOfTheSecondTime) {
  RetainedResults results(disk_, file_, 1000);
  for (const std::int64_t sent : {1, 2}) results.keep(id_of(sent), result_of({1}), {});
  results.forget_after(StepIndex(1));
  EXPECT_TRUE(results.holds(id_of(1)));
  EXPECT_FALSE(results.holds(id_of(2)));
  results.keep(id_of(2), result_of({7}), {});
  EXPECT_THAT(results.read(id_of(2), kMembers)->reduced.values, ElementsAre(7));
}

TEST_F(RetainedResultsTest, MoreThanIsAllowedIsNotKeptUntilTheNextTime) {
  RetainedResults results(disk_, file_, 100);
  results.keep(id_of(3), result_of(std::vector<float>(10)), {});
  EXPECT_TRUE(exists());
  results.keep(id_of(6), result_of(std::vector<float>(10)), {});
  ASSERT_TRUE(results.lack());
  EXPECT_THAT(*results.lack(), HasSubstr("net.heal"));
  EXPECT_FALSE(exists()) << "what is of no use is kept";
  EXPECT_FALSE(results.holds(id_of(3)));
  results.keep(id_of(9), result_of({1}), {});
  EXPECT_FALSE(results.holds(id_of(9))) << "with a gap nothing can be replayed";
  results.restart();
  EXPECT_EQ(results.lack(), std::nullopt);
  results.keep(id_of(12), result_of({1}), {});
  EXPECT_TRUE(results.holds(id_of(12)));
}

TEST_F(RetainedResultsTest, AFullDiskIsNoErrorOfTheRun) {
  FaultyStorage full(disk_, {.disk_full_after_bytes = 60});
  RetainedResults results(full, file_, 1000);
  results.keep(id_of(3), result_of({1, 2}), {});
  results.keep(id_of(6), result_of({3, 4}), {});
  ASSERT_TRUE(results.lack());
  EXPECT_FALSE(exists());
}

TEST_F(RetainedResultsTest, WhatTheDiskHasChangedOrLostIsNotHandedOut) {
  RetainedResults results(disk_, file_, 1000);
  results.keep(id_of(3), result_of({1, 2}), {});
  std::vector<std::byte> bytes = disk_.read(file_);
  bytes.back() ^= std::byte{1};
  write_atomically(disk_, file_, bytes);
  EXPECT_THAT(why_not(results, 3), HasSubstr("not on the disk as it was"));
  write_atomically(disk_, file_, std::span(bytes).first(bytes.size() - 1));
  EXPECT_THAT(why_not(results, 3), HasSubstr("cut off"));
  disk_.remove_all(file_);
  EXPECT_THAT(why_not(results, 3), HasSubstr("cannot be read"));
  EXPECT_THAT(why_not(results, 4), HasSubstr("step 4, fragment 0"));
}

}  // namespace
}  // namespace isthmus
