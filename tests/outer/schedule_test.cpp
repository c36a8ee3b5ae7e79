// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/schedule.h"

#include <gtest/gtest.h>

#include "isthmus/errors.h"

namespace isthmus::outer::this_file {
namespace {

std::vector<Sync> sends(const Schedule& schedule, std::int64_t last) {
  std::vector<Sync> all;
  for (std::int64_t t = 0; t <= last; ++t) {
    for (const Sync& sync : schedule.due_to_send(StepIndex(t))) {
      all.push_back(sync);
    }
  }
  return all;
}

TEST(Schedule, SendsEachFragmentWhenTheStepIsItsOffsetModuloH) {
  const Schedule schedule(6, {3, 0}, 1);
  const std::vector<Sync> expected = {{FragmentId(0), StepIndex(3), StepIndex(4)},
                                      {FragmentId(1), StepIndex(6), StepIndex(7)},
                                      {FragmentId(0), StepIndex(9), StepIndex(10)},
                                      {FragmentId(1), StepIndex(12), StepIndex(13)}};
  EXPECT_EQ(sends(schedule, 14), expected);
}

TEST(Schedule, NothingIsSentBeforeTheFirstStep) {
  EXPECT_TRUE(Schedule(4, {0, 0}, 3).due_to_send(StepIndex(0)).empty());
}

TEST(Schedule, EachFragmentIsSentOncePerH) {
  for (const std::int64_t fragments : {1, 3, 9}) {
    const std::int64_t H = 5;
    const Schedule schedule(H, resolve_offsets(OffsetsSpread{}, H, fragments), 2);
    std::vector<int> count(static_cast<std::size_t>(fragments));
    for (std::int64_t t = 11; t < 11 + H; ++t) {
      for (const Sync& sync : schedule.due_to_send(StepIndex(t))) {
        ++count[static_cast<std::size_t>(sync.fragment.value())];
      }
    }
    EXPECT_EQ(count, std::vector<int>(static_cast<std::size_t>(fragments), 1));
  }
}

TEST(Schedule, TheNextSendIsTheFirstStepThatSendsSomething) {
  for (const std::vector<std::int64_t>& offsets :
       {std::vector<std::int64_t>{0}, {3, 0}, {2, 5, 5}, {6}}) {
    const Schedule schedule(7, offsets, 0);
    for (std::int64_t from = 1; from < 20; ++from) {
      std::int64_t sends = from;
      while (schedule.due_to_send(StepIndex(sends)).empty()) ++sends;
      EXPECT_EQ(schedule.next_send(StepIndex(from)), StepIndex(sends)) << "from " << from;
    }
  }
}

TEST(Offsets, SpreadZeroAndListsResolve) {
  EXPECT_EQ(resolve_offsets(OffsetsSpread{}, 10, 4), (std::vector<std::int64_t>{0, 2, 5, 7}));
  EXPECT_EQ(resolve_offsets(OffsetsZero{}, 10, 3), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(resolve_offsets(std::vector<std::int64_t>{3, 0}, 6, 2),
            (std::vector<std::int64_t>{3, 0}));
}

TEST(Offsets, ListsOfTheWrongLengthOrRangeAreRefused) {
  EXPECT_THROW((void)resolve_offsets(std::vector<std::int64_t>{1}, 6, 2), ConfigError);
  EXPECT_THROW((void)resolve_offsets(std::vector<std::int64_t>{0, 6}, 6, 2), ConfigError);
  EXPECT_THROW((void)resolve_offsets(std::vector<std::int64_t>{-1, 0}, 6, 2), ConfigError);
}

}  // namespace
}  // namespace isthmus::outer::this_file
