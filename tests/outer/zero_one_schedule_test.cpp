// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/zero_one_schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace isthmus::this_file {
namespace {

using outer::ZeroOneSchedule;
using outer::ZeroOneStep;

// Golden, worked out by hand from I = 2^floor(updates / 8) and J = min(8, 2^floor(j / 25)):
// updates 1-8 at 1..8 (I 1), 9-16 at 10..24 in twos, 17-24 at 28..56 in fours, 25-32 at 64..120 in
// eights, then I = 16 and no multiple is left up to 120. Syncs of J 1 at 121..145, 2 at 146..170 in
// twos, 4 at 172..195 in fours, then 8.
TEST(ZeroOneSchedule, CommunicatesAtTheListedStepsOf200) {
  const ZeroOneAdamOptions keys{.var_freeze_step = 120,
                                .var_update_scaler = 8,
                                .local_step_scaler = 25,
                                .local_step_clipper = 8};
  std::vector<int> variance, syncs, local;
  int compressed = 0;
  ZeroOneSchedule schedule(keys);
  for (int t = 1; t <= 200; ++t) {
    switch (schedule.next()) {
      case ZeroOneStep::kVariance:
        variance.push_back(t);
        break;
      case ZeroOneStep::kCompressed:
        ++compressed;
        break;
      case ZeroOneStep::kSync:
        syncs.push_back(t);
        break;
      case ZeroOneStep::kLocal:
        local.push_back(t);
        break;
    }
  }
  EXPECT_EQ(variance,
            (std::vector<int>{1,  2,  3,  4,  5,  6,  7,  8,  10, 12, 14, 16, 18, 20,  22,  24,
                              28, 32, 36, 40, 44, 48, 52, 56, 64, 72, 80, 88, 96, 104, 112, 120}));
  EXPECT_EQ(compressed, 120 - 32);
  EXPECT_EQ(syncs, (std::vector<int>{121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132,
                                     133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144,
                                     145, 146, 148, 150, 152, 154, 156, 158, 160, 162, 164, 166,
                                     168, 170, 172, 176, 180, 184, 188, 192, 200}));
  EXPECT_EQ(local.size(), 80 - syncs.size());
}

TEST(ZeroOneSchedule, GoesOnWhereItWas) {
  const ZeroOneAdamOptions keys{.var_freeze_step = 40,
                                .var_update_scaler = 3,
                                .local_step_scaler = 7,
                                .local_step_clipper = 16};
  for (int stop = 0; stop <= 100; ++stop) {
    ZeroOneSchedule whole(keys);
    for (int t = 1; t <= stop; ++t) static_cast<void>(whole.next());
    ZeroOneSchedule resumed(keys);
    resumed.go_on_from(StepIndex(stop));
    for (int t = stop; t < 120; ++t) ASSERT_EQ(resumed.next(), whole.next()) << stop;
  }
}

// The same counts as step by step, whatever stretches are asked for.
TEST(ZeroOneSchedule, StretchesCountWhatTheStepsAre) {
  for (const std::int64_t freeze : {1, 5, 40, 64}) {
    for (const std::int64_t updates : {1, 3, 16}) {
      for (const std::int64_t scaler : {1, 7, 25}) {
        for (const std::int64_t clipper : {1, 6, 16}) {
          const ZeroOneAdamOptions keys{.var_freeze_step = freeze,
                                        .var_update_scaler = updates,
                                        .local_step_scaler = scaler,
                                        .local_step_clipper = clipper};
          ZeroOneSchedule steps(keys);
          ZeroOneSchedule stretches(keys);
          std::int64_t done = 0;
          for (const std::int64_t most : {3, 1, 100, 1000, 2, 500}) {
            const outer::ZeroOneStretch stretch = stretches.next_stretch(most);
            ASSERT_GE(stretch.steps, 1);
            ASSERT_LE(stretch.steps, most);
            std::int64_t variance = 0, compressed = 0, syncs = 0, last = 0;
            for (std::int64_t i = 1; i <= stretch.steps; ++i) {
              const ZeroOneStep step = steps.next();
              variance += step == ZeroOneStep::kVariance ? 1 : 0;
              compressed += step == ZeroOneStep::kCompressed ? 1 : 0;
              syncs += step == ZeroOneStep::kSync ? 1 : 0;
              if (step != ZeroOneStep::kLocal) last = done + i;
            }
            done += stretch.steps;
            EXPECT_EQ(stretch.variance, variance) << done << " of " << freeze;
            EXPECT_EQ(stretch.compressed, compressed) << done << " of " << freeze;
            EXPECT_EQ(stretch.syncs, syncs) << done << " of " << freeze;
            EXPECT_EQ(stretch.last_sent, last) << done << " of " << freeze;
            EXPECT_EQ(stretch.interval == 0, done <= freeze);
          }
        }
      }
    }
  }
}

// The last interval has no end, so the number of stretches does not grow with the steps.
TEST(ZeroOneSchedule, AThousandMillionStepsAreAFewStretches) {
  ZeroOneSchedule schedule(ZeroOneAdamOptions{});
  int stretches = 0;
  for (std::int64_t done = 0; done < 1'000'000'000; ++stretches) {
    done += schedule.next_stretch(1'000'000'000 - done).steps;
  }
  EXPECT_LT(stretches, 100);
}

}  // namespace
}  // namespace isthmus::this_file
