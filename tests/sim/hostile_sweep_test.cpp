// SPDX-License-Identifier: Apache-2.0
// Runs to which everything happens that a schedule can draw (hostile_run.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "hostile_run.h"
#include "sweep_seeds.h"

namespace isthmus::this_file {
namespace {

using namespace testing_support;

std::uint64_t seeds() { return by_weight<std::uint64_t>(30, 300); }
std::uint64_t late_seeds() { return seeds() / 3; }

TEST(HostileSweep, EveryPromiseIsKeptWhateverHappens) {
  HostileTally all;
  std::uint64_t ended = 0;
  for (const std::uint64_t seed : sweep_seeds(seeds())) {
    const SweptSchedule schedule(seed);
    HostileRun run(draw_schedule(seed));
    for (const std::string& what : run.play()) ADD_FAILURE() << what;
    if (schedule.failed()) continue;
    const HostileTally& tally = run.tally();
    all.rounds += tally.rounds;
    all.priced += tally.priced;
    all.crashes += tally.crashes;
    all.leaves += tally.leaves;
    all.hub_crashes += tally.hub_crashes;
    all.torn += tally.torn;
    all.left_out += tally.left_out;
    all.joins += tally.joins;
    ended += tally.nobody_left ? 1 : 0;
    all.frames.dropped += tally.frames.dropped;
    all.frames.delayed += tally.frames.delayed;
    all.frames.duplicated += tally.frames.duplicated;
    all.frames.reordered += tally.frames.reordered;
    all.frames.corrupted += tally.frames.corrupted;
  }
  if (HasFailure() || sweeping()) return;
  // The schedules are none of nothing.
  const auto many = static_cast<int>(seeds() / 4);
  EXPECT_GT(all.crashes, many);
  EXPECT_GT(all.leaves, many / 4);
  EXPECT_GT(all.hub_crashes, many / 4);
  EXPECT_GT(all.torn, many / 16);
  EXPECT_GT(all.left_out, many / 4);
  EXPECT_GT(all.joins, many);
  EXPECT_GT(all.priced, all.rounds / 2);
  EXPECT_LE(ended, seeds() / 20);
  for (const std::uint64_t count : {all.frames.dropped, all.frames.delayed, all.frames.duplicated,
                                    all.frames.reordered, all.frames.corrupted}) {
    EXPECT_GT(count, seeds());
  }
}

// The same schedules and more, with a deadline and slow sites, some for ever.
TEST(HostileSweep, EveryPromiseIsKeptWithADeadlineWhateverHappens) {
  HostileTally all;
  std::uint64_t ended = 0;
  for (const std::uint64_t seed : sweep_seeds(late_seeds())) {
    const SweptSchedule schedule(seed);
    HostileRun run(draw_late_schedule(seed));
    for (const std::string& what : run.play()) ADD_FAILURE() << what;
    if (schedule.failed()) continue;
    const HostileTally& tally = run.tally();
    all.rounds += tally.rounds;
    all.stood_in += tally.stood_in;
    all.met += tally.met;
    all.skipped += tally.skipped;
    all.carried += tally.carried;
    all.lone += tally.lone;
    all.priced += tally.priced;
    all.joins += tally.joins;
    all.without_in_a_row = std::max(all.without_in_a_row, tally.without_in_a_row);
    ended += tally.nobody_left ? 1 : 0;
  }
  if (HasFailure() || sweeping()) return;
  const auto many = static_cast<int>(late_seeds());
  EXPECT_GT(all.stood_in, 2 * many);
  EXPECT_GT(all.met, many);
  EXPECT_GT(all.skipped, many);
  EXPECT_GT(all.carried, many);
  EXPECT_GT(all.lone, many / 4);
  EXPECT_GT(all.joins, many / 2);
  EXPECT_GT(all.priced, all.rounds / 4);
  EXPECT_GE(all.without_in_a_row, 2) << "each run holds its own against the bound";
  EXPECT_LE(ended, 1 + late_seeds() / 20);
}

// The same seed is the same run.
TEST(HostileSweep, ASeedReplays) {
  for (const std::uint64_t seed : {3u, 8u}) {
    HostileRun first(draw_schedule(seed)), second(draw_schedule(seed));
    EXPECT_EQ(first.play(), second.play());
    EXPECT_EQ(first.trace_hash(), second.trace_hash());
    HostileRun late(draw_late_schedule(seed)), again(draw_late_schedule(seed));
    EXPECT_EQ(late.play(), again.play());
    EXPECT_EQ(late.trace_hash(), again.trace_hash());
    EXPECT_NE(late.trace_hash(), first.trace_hash());
  }
}

}  // namespace
}  // namespace isthmus::this_file
