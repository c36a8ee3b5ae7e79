// SPDX-License-Identifier: Apache-2.0
// What is on the disk of the results of rounds, and what is told where it is not.
#include "transport/exchange/catch_up/retained_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage_faults.h"
#include "transport/exchange/catch_up/joining_exchange.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/exchange/run_in_process.h"
#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kMembers = 2;
constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;

SyncId id_of(std::int64_t sent) { return {FragmentId(0), StepIndex(sent)}; }

Reduced result_of(std::vector<float> values) {
  return {
      .values = std::move(values), .contributors = {WorkerId(0), WorkerId(1)}, .contributions = {}};
}

class RetainedResultsTest : public testing::Test {
 protected:
  RetainedResultsTest() { disk_.remove_all(file_); }
  static RetainedResults::Room room(std::uint64_t most_bytes) {
    return {.most_bytes = most_bytes, .free_bytes = [] { return kPlenty; }};
  }
  static void keep(RetainedResults& results, std::int64_t sent, const Reduced& result) {
    results.keep(id_of(sent), result, {}, digest_of(result, kMembers));
  }
  static std::vector<float> values_of(RetainedResults& results, std::int64_t sent,
                                      std::size_t values = 2) {
    const auto read = results.read(id_of(sent), {.values = values}, kMembers);
    return read ? read->values : std::vector<float>();
  }
  static std::string why_not(RetainedResults& results, std::int64_t sent) {
    const auto read = results.read(id_of(sent), {.values = 2}, kMembers);
    return read ? "it is there" : read.error();
  }
  [[nodiscard]] bool exists() const { return disk_.kind(file_) != FileKind::kAbsent; }

  SystemStorage disk_;
  const std::filesystem::path file_ =
      std::filesystem::path(testing::TempDir()) / "retained_results_test";
};

TEST_F(RetainedResultsTest, AreReadAsTheyWereGivenInAnyOrderAndGoInTheEnd) {
  {
    RetainedResults results(disk_, file_, room(1000));
    EXPECT_FALSE(exists());
    keep(results, 3, result_of({1, 2}));
    keep(results, 6, result_of({3, 4}));
    EXPECT_THAT(values_of(results, 6), ElementsAre(3, 4));
    keep(results, 9, result_of({5, 6}));
    EXPECT_THAT(values_of(results, 3), ElementsAre(1, 2));
    EXPECT_THAT(values_of(results, 9), ElementsAre(5, 6));
    EXPECT_EQ(results.lack(), std::nullopt);
  }
  EXPECT_FALSE(exists());
}

TEST_F(RetainedResultsTest, OnesThatHaveBeenTakenBackAreThoseOfTheSecondTime) {
  RetainedResults results(disk_, file_, room(1000));
  for (const std::int64_t sent : {1, 2}) keep(results, sent, result_of({1}));
  results.forget_after(StepIndex(1));
  EXPECT_TRUE(results.holds(id_of(1)));
  EXPECT_FALSE(results.holds(id_of(2)));
  keep(results, 2, result_of({7}));
  EXPECT_THAT(values_of(results, 2, 1), ElementsAre(7));
}

TEST_F(RetainedResultsTest, MoreThanIsAllowedIsNotKeptUntilTheNextTime) {
  RetainedResults results(disk_, file_, room(100));
  keep(results, 3, result_of(std::vector<float>(10)));
  EXPECT_TRUE(exists());
  keep(results, 6, result_of(std::vector<float>(10)));
  ASSERT_TRUE(results.lack());
  EXPECT_THAT(*results.lack(), HasSubstr("net.heal"));
  EXPECT_FALSE(exists()) << "what is of no use is kept";
  EXPECT_FALSE(results.holds(id_of(3)));
  keep(results, 9, result_of({1}));
  EXPECT_FALSE(results.holds(id_of(9))) << "with a gap nothing can be replayed";
  results.restart();
  EXPECT_EQ(results.lack(), std::nullopt);
  keep(results, 12, result_of({1}));
  EXPECT_TRUE(results.holds(id_of(12)));
}

TEST_F(RetainedResultsTest, AFullDiskIsNoErrorOfTheRun) {
  FaultyStorage full(disk_, {.disk_full_after_bytes = 60});
  RetainedResults results(full, file_, room(1000));
  keep(results, 3, result_of({1, 2}));
  keep(results, 6, result_of({3, 4}));
  ASSERT_TRUE(results.lack());
  EXPECT_FALSE(exists());
}

TEST_F(RetainedResultsTest, ADiskThatIsNearlyFullHasItsRoomBack) {
  std::uint64_t free = RetainedResults::kLeavesFree + 1000;
  RetainedResults results(disk_, file_,
                          {.most_bytes = kPlenty, .free_bytes = [&free] { return free; }});
  keep(results, 3, result_of({1, 2}));
  EXPECT_TRUE(results.holds(id_of(3)));
  free = RetainedResults::kLeavesFree;
  keep(results, 6, result_of({3, 4}));
  ASSERT_TRUE(results.lack());
  EXPECT_THAT(*results.lack(), HasSubstr("the disk has 250 MB free"));
  EXPECT_FALSE(exists());
  free = kPlenty;
  keep(results, 9, result_of({5, 6}));
  EXPECT_FALSE(results.holds(id_of(9))) << "with a gap nothing can be replayed";
  results.restart();
  keep(results, 12, result_of({7, 8}));
  EXPECT_TRUE(results.holds(id_of(12)));
}

TEST_F(RetainedResultsTest, WhatIsNotWhatItsRoundCommittedWithIsNotHandedOut) {
  RetainedResults results(disk_, file_, room(1000));
  const Digest128 committed = digest_of(result_of({1, 2}), kMembers);
  results.keep(id_of(3), result_of({1, 2.5f}), {}, committed);  // changed in memory since
  EXPECT_THAT(why_not(results, 3), HasSubstr("is not what was committed"));
  Reduced another = result_of({1, 2});
  another.contributors.pop_back();
  results.keep(id_of(4), another, {}, committed);
  EXPECT_THAT(why_not(results, 4), HasSubstr("is not what was committed"));
  results.keep(id_of(5), result_of({1, 2}), {}, committed);
  EXPECT_THAT(values_of(results, 5), ElementsAre(1, 2));
}

// The digest is what members have compared, and a result takes what its codec says on the disk,
// whether or not it is handed on to a joiner as well.
TEST_F(RetainedResultsTest, AreHeldAgainstTheRoundsDigestAndKeptEncodedThoughSomebodyJoins) {
  constexpr std::size_t kValues = 9001;
  const std::shared_ptr<const Codec> codec = make_codec("int4");
  for (const ReductionKind kind :
       {ReductionKind::kReduce, ReductionKind::kGather, ReductionKind::kCollect}) {
    for (const bool joins : {false, true}) {
      std::uint64_t handed_on = 0, on_disk = 0;
      run_in_process(3, {.keeps_encoded = true}, [&](WorkerContext& context) {
        auto& real = dynamic_cast<PeerExchange&>(context.exchange);
        ForwardingExchange donor(real,
                                 [&](const SyncId& id) { return real.origin_of(id).encoded; });
        const bool looks = context.rank == WorkerId(0);
        if (looks && joins) {
          donor.forward_to([&](const SyncId&, const Reduced& result, const auto& encoded) {
            handed_on = written_bytes(result, encoded);
          });
        }
        RetainedResults results(disk_, file_.string() + std::to_string(context.rank.value()),
                                room(1'000'000));
        RetainingExchange exchange(donor, results,
                                   [&](const SyncId& id) { return real.origin_of(id); });
        const auto contribution = [&] {
          return testing_support::contribution_of(codec, context.rank, kValues, id_of(6), kind);
        };
        const auto taken = exchange.wait(exchange.begin(contribution()), std::chrono::minutes(1));
        ASSERT_TRUE(taken);
        EXPECT_EQ(real.origin_of(id_of(6)).digest, digest_of(*taken, 3));
        if (looks) on_disk = results.bytes();
        exchange.set_replaying(true);
        const auto again = exchange.wait(exchange.begin(contribution()), std::chrono::minutes(1));
        ASSERT_TRUE(again) << again.error().what;
        EXPECT_EQ(again->values, taken->values);
      });
      EXPECT_LT(on_disk, kValues * sizeof(float)) << static_cast<int>(kind);
      EXPECT_EQ(handed_on, joins ? on_disk : 0);
    }
  }
}

TEST_F(RetainedResultsTest, WhatTheDiskHasChangedOrLostIsNotHandedOut) {
  RetainedResults results(disk_, file_, room(1000));
  keep(results, 3, result_of({1, 2}));
  std::vector<std::byte> bytes = disk_.read(file_);
  bytes.back() ^= std::byte{1};
  write_atomically(disk_, file_, bytes);
  EXPECT_THAT(why_not(results, 3), HasSubstr("is not what was committed"));
  write_atomically(disk_, file_, std::span(bytes).first(bytes.size() - 1));
  EXPECT_THAT(why_not(results, 3), HasSubstr("cut off"));
  disk_.remove_all(file_);
  EXPECT_THAT(why_not(results, 3), HasSubstr("cannot be read"));
  EXPECT_THAT(why_not(results, 4), HasSubstr("step 4, fragment 0"));
}

}  // namespace
}  // namespace isthmus::this_file
