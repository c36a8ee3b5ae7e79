// SPDX-License-Identifier: Apache-2.0
// Members that are there, but do not begin a round, or come to other results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "transport/engine_net.h"
#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing_support::contribution_of;
using testing_support::EngineNet;

std::vector<int> ranks_of(const Reduced& result) {
  std::vector<int> ranks;
  for (const WorkerId rank : result.contributors) ranks.push_back(rank.value());
  return ranks;
}

// Whoever has waited long enough says so; who has begun is never meant.
TEST(ExchangeUnfit, WhoHasNotBegunCanBeLeftBehind) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const SyncId id{FragmentId(0), StepIndex(1)};
  for (const ReductionKind kind :
       {ReductionKind::kReduce, ReductionKind::kGather, ReductionKind::kCollect}) {
    for (const int waits : {0, 1}) {
      for (const int least : {2, 3}) {
        EngineNet net(3, 1, {}, true, least);
        for (const int m : {0, 1}) {
          net.begin(m, contribution_of(codec, WorkerId(m), 9000, id, kind));
        }
        while (net.busy()) (void)net.advance();
        net.leave_behind(waits, id);
        while (net.busy()) (void)net.advance();
        const bool spared = least == 3;
        ASSERT_EQ(net.engine(0).ready(id), !spared);
        ASSERT_EQ(net.engine(1).ready(id), !spared);
        net.begin(2, contribution_of(codec, WorkerId(2), 9000, id, kind));
        while (net.busy()) (void)net.advance();
        ASSERT_TRUE(net.engine(2).ready(id));
        const auto late = net.engine(2).take(id);
        ASSERT_EQ(late.has_value(), spared);
        if (!spared) {
          EXPECT_EQ(late.error().kind, ExchangeError::Kind::kEvicted);
        }
        const auto first = net.engine(0).take(id);
        ASSERT_TRUE(first.has_value());
        EXPECT_EQ(ranks_of(*first), spared ? std::vector({0, 1, 2}) : std::vector({0, 1}));
      }
    }
  }
}

// In groups who has begun cannot see which of another group has not. Those of its own group name
// it, where any has begun; else the group's partials are waited for, and who was to send them is
// meant.
TEST(ExchangeUnfit, InGroupsAStragglerIsLeftBehindByItsOwnOrWithAllOfThem) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const SyncId id{FragmentId(0), StepIndex(1)};
  for (const bool whole_group : {false, true}) {
    EngineNet net(4, 1, {}, true, 1, 100ms, false, {0, 0, 2, 2});
    const std::vector<int> begun = whole_group ? std::vector{0, 1} : std::vector{0, 1, 2};
    for (const int m : begun) {
      net.begin(m, contribution_of(codec, WorkerId(m), 90'000, id, ReductionKind::kReduce));
    }
    while (net.busy()) (void)net.advance();
    for (const int m : {0, 1}) net.leave_behind(m, id);  // names nobody
    while (net.busy()) (void)net.advance();
    ASSERT_FALSE(net.engine(0).ready(id));
    if (whole_group) {
      for (const int m : {0, 1}) net.leave_behind(m, id, true);
    } else {
      net.leave_behind(2, id);
    }
    while (net.busy()) (void)net.advance();
    for (const int m : begun) {
      ASSERT_TRUE(net.engine(m).ready(id)) << m;
      const auto result = net.engine(m).take(id);
      ASSERT_TRUE(result.has_value()) << m;
      EXPECT_EQ(ranks_of(*result), begun) << m;
    }
  }
}

// Members 0 and 1 wait for member 2, which has begun, and not for a result that is theirs to make.
TEST(ExchangeUnfit, WhoHasBegunIsNotLeftBehind) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const SyncId id{FragmentId(0), StepIndex(1)};
  EngineNet net(3, 1, {.delay = 5ms}, true);
  for (int m = 0; m < 3; ++m) {
    net.begin(m, contribution_of(codec, WorkerId(m), 9000, id, ReductionKind::kReduce));
  }
  while (net.now() <= TimePoint{} + 5ms) ASSERT_TRUE(net.advance());  // contributions are there
  for (const int m : {0, 1, 2}) {
    ASSERT_FALSE(net.engine(m).ready(id));
    net.leave_behind(m, id);
  }
  while (net.busy()) (void)net.advance();
  for (int m = 0; m < 3; ++m) {
    const auto result = net.engine(m).take(id);
    ASSERT_TRUE(result.has_value()) << m;
    EXPECT_EQ(ranks_of(*result), std::vector({0, 1, 2}));
  }
}

/// What member 2 says of its results is wrong.
FrameBytes with_another_digest(int from, const FrameBytes& frame) {
  const Frame read = *parse_frame(*frame);
  if (from != 2 || read.header.kind != FrameKind::kDone) return frame;
  std::vector<std::byte> digest(read.payload.begin(), read.payload.end());
  digest.front() ^= std::byte{1};
  return make_frame(read.header, digest);
}

TEST(ExchangeUnfit, WhoseResultDiffersFromTheOthersIsLeftOutOnce) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const SyncId id{FragmentId(0), StepIndex(1)};
  EngineNet net(3, 1, {}, true);
  net.forge = with_another_digest;
  for (int m = 0; m < 3; ++m) {
    net.begin(m, contribution_of(codec, WorkerId(m), 9000, id, ReductionKind::kReduce));
  }
  while (net.busy()) (void)net.advance();
  for (const int m : {0, 1}) {
    ASSERT_TRUE(net.engine(m).ready(id));
    EXPECT_EQ(ranks_of(*net.engine(m).take(id)), std::vector({0, 1}));
    EXPECT_THAT(net.engine(m).take_epochs().back().why, ::testing::HasSubstr("differs"));
  }
  EXPECT_EQ(net.engine(2).take(id).error().kind, ExchangeError::Kind::kEvicted);

  net.kill(2);
  net.revive(2);
  net.admit(2, 1);
  while (net.busy()) (void)net.advance();
  const SyncId next{FragmentId(0), StepIndex(2)};
  for (int m = 0; m < 3; ++m) {
    net.begin(m, contribution_of(codec, WorkerId(m), 9000, next, ReductionKind::kReduce));
  }
  while (net.busy()) (void)net.advance();
  for (int m = 0; m < 3; ++m) {
    ASSERT_TRUE(net.engine(m).ready(next)) << m;
    EXPECT_EQ(net.engine(m).take(next).error().kind, ExchangeError::Kind::kDiverged) << m;
  }
}

// Of two who differ nobody can say who is right.
TEST(ExchangeUnfit, WithoutAGreaterHalfResultsThatDifferEndTheRun) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const SyncId id{FragmentId(0), StepIndex(1)};
  EngineNet net(3, 1, {}, true);
  net.forge = with_another_digest;
  net.kill(1);
  for (const int m : {0, 2}) {
    net.begin(m, contribution_of(codec, WorkerId(m), 9000, id, ReductionKind::kReduce));
  }
  while (net.busy()) (void)net.advance();
  for (const int m : {0, 2}) {
    ASSERT_TRUE(net.engine(m).ready(id));
    EXPECT_EQ(net.engine(m).take(id).error().kind, ExchangeError::Kind::kDiverged);
  }
}

}  // namespace
}  // namespace isthmus::this_file
