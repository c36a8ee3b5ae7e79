// SPDX-License-Identifier: Apache-2.0
// The order of samples of data that were appended to while a run was at rest.
#include "data/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace isthmus::this_file {
namespace {

constexpr std::int64_t kContext = 8;

BatchPlan plan_of(std::int64_t samples, int workers, DataOrder order, DataPartition partition) {
  return {.context = kContext,
          .samples = samples,
          .workers = workers,
          .order = order,
          .partition = partition,
          .seed = 11};
}

std::int64_t tokens_of(std::int64_t windows) { return windows * kContext + 1; }

/// Windows that worker m reads in steps [begin, end), in their order.
std::vector<std::int64_t> windows_of(const BatchPlan& plan, const std::vector<DataEra>& eras,
                                     int worker, std::int64_t begin, std::int64_t end) {
  const SampleOrder order(plan, eras, worker);
  std::vector<std::int64_t> windows;
  for (std::int64_t step = begin; step < end; ++step) {
    for (std::int64_t sample = worker; sample < plan.samples; sample += plan.workers) {
      windows.push_back(order.begin(step, sample) / kContext);
    }
  }
  return windows;
}

std::vector<std::int64_t> windows_of_all(const BatchPlan& plan, const std::vector<DataEra>& eras,
                                         std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> windows;
  for (int worker = 0; worker < plan.workers; ++worker) {
    const auto own = windows_of(plan, eras, worker, begin, end);
    windows.insert(windows.end(), own.begin(), own.end());
  }
  return windows;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::ranges::sort(values);
  return values;
}

std::vector<std::int64_t> up_to(std::int64_t end) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < end; ++i) all.push_back(i);
  return all;
}

TEST(SampleOrder, ThePassUnderWayReadsWhatItHadLeftAndWhatWasAppendedOnce) {
  // 24 windows, 4 a step; 7 steps: one pass and 4 windows of the second. Then 36 windows: the
  // second pass has 20 left and 12 appended, which are 8 steps; a whole pass is 9.
  const BatchPlan plan = plan_of(4, 2, DataOrder::kShuffle, DataPartition::kIid);
  const std::vector<DataEra> before = {{0, tokens_of(24)}};
  const std::vector<DataEra> grown = {{0, tokens_of(24)}, {7, tokens_of(36)}};
  EXPECT_EQ(windows_of_all(plan, grown, 0, 7), windows_of_all(plan, before, 0, 7));
  std::vector<std::int64_t> second = windows_of_all(plan, grown, 6, 15);
  EXPECT_EQ(sorted(second), up_to(36));
  EXPECT_EQ(sorted(windows_of_all(plan, grown, 15, 24)), up_to(36));
  EXPECT_EQ(sorted(windows_of_all(plan, grown, 24, 33)), up_to(36));
  EXPECT_NE(windows_of_all(plan, grown, 15, 24), windows_of_all(plan, grown, 24, 33));
  // Appended windows come among the others, not all at the end.
  const auto first_half = windows_of_all(plan, grown, 7, 11);
  EXPECT_GT(std::ranges::count_if(first_half, [](std::int64_t w) { return w >= 24; }), 0);
}

TEST(SampleOrder, GrowsAgainInsideAPassThatGrew) {
  const BatchPlan plan = plan_of(4, 1, DataOrder::kShuffle, DataPartition::kIid);
  const std::vector<DataEra> grown = {
      {0, tokens_of(24)}, {3, tokens_of(32)}, {5, tokens_of(40)}, {5, tokens_of(44)}};
  EXPECT_EQ(sorted(windows_of_all(plan, grown, 0, 11)), up_to(44));
  EXPECT_EQ(sorted(windows_of_all(plan, grown, 11, 22)), up_to(44));
}

TEST(SampleOrder, AnotherNumberOfWorkersReadsTheSameGrownSamples) {
  const std::vector<DataEra> grown = {{0, tokens_of(25)}, {5, tokens_of(39)}};
  const BatchPlan one = plan_of(4, 1, DataOrder::kShuffle, DataPartition::kIid);
  const BatchPlan four = plan_of(4, 4, DataOrder::kShuffle, DataPartition::kIid);
  for (std::int64_t step = 0; step < 30; ++step) {
    EXPECT_EQ(sorted(windows_of_all(one, grown, step, step + 1)),
              sorted(windows_of_all(four, grown, step, step + 1)));
  }
}

TEST(SampleOrder, EachWorkerHasItsShareOfWhatWasAppended) {
  const BatchPlan plan = plan_of(4, 2, DataOrder::kShuffle, DataPartition::kShards);
  const std::vector<DataEra> grown = {{0, tokens_of(24)}, {4, tokens_of(40)}};
  std::vector<std::int64_t> all;
  for (int worker = 0; worker < 2; ++worker) {
    // 12 windows each, 2 a step: 8 read, 4 left, 8 appended.
    const auto pass = windows_of(plan, grown, worker, 0, 10);
    EXPECT_EQ(std::set(pass.begin(), pass.end()).size(), 20U);
    const auto next = windows_of(plan, grown, worker, 10, 20);
    EXPECT_EQ(sorted(next), sorted(pass));
    all.insert(all.end(), next.begin(), next.end());
  }
  EXPECT_EQ(sorted(all), up_to(40));
}

TEST(SampleOrder, InSequenceTheReadingGoesOnWhereItStood) {
  const BatchPlan plan = plan_of(2, 1, DataOrder::kSequential, DataPartition::kIid);
  // 8 windows: positions are modulo 8 * 8 + 1 - 8 - 1 = 56, 7 windows.
  const std::vector<DataEra> grown = {{0, tokens_of(8)}, {5, tokens_of(12)}};
  EXPECT_EQ(windows_of(plan, grown, 0, 0, 5),
            (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 0, 1, 2}));
  EXPECT_EQ(windows_of(plan, grown, 0, 5, 11),
            (std::vector<std::int64_t>{3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3}));
  const BatchPlan shards = plan_of(2, 2, DataOrder::kSequential, DataPartition::kShards);
  const std::vector<DataEra> more = {{0, tokens_of(8)}, {2, tokens_of(12)}};
  EXPECT_EQ(windows_of(shards, more, 1, 0, 8),
            (std::vector<std::int64_t>{4, 5, 6, 7, 10, 4, 5, 6}));
}

TEST(SampleOrder, DataThatDidNotGrowAreAsEver) {
  for (const DataOrder order : {DataOrder::kShuffle, DataOrder::kSequential}) {
    for (const DataPartition partition : {DataPartition::kIid, DataPartition::kShards}) {
      const BatchPlan plan = plan_of(6, 3, order, partition);
      const std::vector<DataEra> eras = {{0, 1003}};
      for (int worker = 0; worker < 3; ++worker) {
        const SampleOrder order_of(plan, eras, worker);
        for (std::int64_t step = 0; step < 100; ++step) {
          ASSERT_EQ(order_of.begin(step, worker + 3), window_begin(plan, 1003, step, worker + 3));
        }
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
