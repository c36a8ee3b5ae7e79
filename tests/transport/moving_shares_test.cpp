// SPDX-License-Identifier: Apache-2.0
// Shares that move, in the protocol itself: members whose files differ about it, rounds that begin
// again, a hub's next process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "transport/engine_net.h"
#include "transport/exchange/measured_shares.h"
#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::HasSubstr;

constexpr std::size_t kValues = 50'000;

Contribution contribution(int member, const SyncId& id) {
  return contribution_of(make_codec("fp32"), WorkerId(member), kValues, id, ReductionKind::kReduce);
}

/// The same frame with another payload.
FrameBytes with_payload(const FrameBytes& frame, const std::vector<std::byte>& payload) {
  return make_frame(parse_frame(*frame)->header, payload);
}

// ---- files that differ

struct Unlike {
  const char* name;
  bool moves;           // where the frame is read
  FrameKind kind;       // ... that is of a member where they do the other thing
  std::size_t payload;  // its bytes
};
void PrintTo(const Unlike& unlike, std::ostream* out) { *out << unlike.name; }

class UnlikeFiles : public ::testing::TestWithParam<std::tuple<Unlike, bool>> {};
INSTANTIATE_TEST_SUITE_P(
    All, UnlikeFiles,
    ::testing::Combine(::testing::Values(Unlike{"DoneWithoutRates", true, FrameKind::kDone, 16},
                                         Unlike{"DoneWithRates", false, FrameKind::kDone, 40},
                                         Unlike{"CutDone", true, FrameKind::kDone, 7},
                                         Unlike{"CommitWithoutShares", true, FrameKind::kCommit, 0},
                                         Unlike{"CommitWithShares", false, FrameKind::kCommit, 12}),
                       ::testing::Bool()),
    [](const auto& each) {
      return std::string(std::get<0>(each.param).name) +
             (std::get<1>(each.param) ? "ToAHub" : "ToTheFirst");
    });

TEST_P(UnlikeFiles, EndTheRoundWithTheKeysName) {
  const auto& [unlike, hub] = GetParam();
  const bool moves = unlike.moves;
  EngineNet net(3, 1, {}, true, 1, 100ms, hub, {}, {}, moves);
  net.forge = [unlike = unlike](int, const FrameBytes& frame) {
    if (parse_frame(*frame)->header.kind != unlike.kind) return frame;
    return with_payload(frame, std::vector<std::byte>(unlike.payload));
  };
  const SyncId id{FragmentId(0), StepIndex(1)};
  for (int m = 0; m < 3; ++m) net.begin(m, contribution(m, id));
  const auto all_ready = [&] {
    return net.engine(0).ready(id) && net.engine(1).ready(id) && net.engine(2).ready(id);
  };
  for (int k = 0; k < 3000 && !all_ready(); ++k) ASSERT_TRUE(net.advance());
  ASSERT_TRUE(all_ready()) << "it never ends";
  // Who says COMMIT has ended the round by it.
  const int first = unlike.kind == FrameKind::kCommit && !hub ? 1 : 0;
  for (int m = first; m < 3; ++m) {
    const auto result = net.engine(m).take(id);
    ASSERT_FALSE(result.has_value()) << m;
    EXPECT_EQ(result.error().kind, ExchangeError::Kind::kCorrupt);
    EXPECT_THAT(result.error().what, HasSubstr("net.shares = \"measured\""));
    EXPECT_THAT(result.error().what, HasSubstr(std::to_string(unlike.payload) + " bytes"));
  }
}

// ---- rounds that begin again

// Member 2 dies in the middle of a round, and the others learn of it seconds later: what they then
// say of each other's lines is of the second time alone.
TEST(MovingShares, WhatIsMeasuredLeavesTheTimeUntilANewEpochOut) {
  constexpr std::size_t kMany = 300'000;  // 1.2 MB, in parts of 32 KiB
  EngineNet net(3, 5, {.per_kilobyte = 1ms}, true, 1, 20s, true, {}, {}, true);
  std::vector<std::vector<std::uint64_t>> said;
  net.forge = [&](int, const FrameBytes& frame) {
    const Frame parsed = parse_frame(*frame).value();
    if (parsed.header.kind == FrameKind::kDone) {
      said.push_back(read_rates(parsed.payload.subspan(sizeof(Digest128::bytes)), 3).value());
    }
    return frame;
  };
  const SyncId id{FragmentId(0), StepIndex(1)};
  for (int m = 0; m < 3; ++m) {
    net.begin(m,
              contribution_of(make_codec("fp32"), WorkerId(m), kMany, id, ReductionKind::kReduce));
  }
  while (net.now() < TimePoint{200ms}) ASSERT_TRUE(net.advance());
  net.kill(2, 10s);
  while (!net.engine(0).ready(id) || !net.engine(1).ready(id)) ASSERT_TRUE(net.advance());
  ASSERT_GE(said.size(), 2u);
  for (const std::vector<std::uint64_t>& rates : said) {
    const std::uint64_t rate = std::max(rates[0], rates[1]);
    EXPECT_GT(rate, 900'000u) << "of 1.02 MB/s";
    EXPECT_LT(rate, 1'100'000u);
  }
}

// ---- a hub's next process

/// What it tells of the shares when all three members have ended a round.
std::vector<std::uint32_t> told_by(ExchangeEngine& hub, const SyncId& id) {
  std::vector<std::byte> payload(sizeof(Digest128::bytes));
  const std::vector<std::byte> rates = write_rates(std::vector<std::uint64_t>(3, 0));
  payload.insert(payload.end(), rates.begin(), rates.end());
  Outbox out;
  for (int m = 0; m < 3; ++m) {
    hub.hub().stands(WorkerId(m), TimePoint{}, out);
    hub.receive(WorkerId(m), make_frame({.kind = FrameKind::kDone, .id = id}, payload), TimePoint{},
                out);
  }
  const Frame last = parse_frame(*out.back().frame).value();
  EXPECT_EQ(last.header.kind, FrameKind::kCommit);
  return read_shares(last.payload, 3).value_or(std::vector<std::uint32_t>());
}

TEST(MovingShares, AHubGoesOnWithThoseOfTheLastCommitAndForgetsThemWithTheRun) {
  ExchangeEngine hub({.self = WorkerId(3),
                      .members = 3,
                      .exchange = {.elastic = true, .hub = true, .moves_shares = true}});
  const auto record = [](int fragment, int sent, std::vector<std::uint32_t> shares) {
    return commit_record({FragmentId(fragment), StepIndex(sent)}, Digest128{},
                         write_shares(shares));
  };
  // By fragment, as `history` has them.
  hub.hub().restore(std::vector<HubRecord>{record(0, 5, {1, 2, 3}), record(0, 9, {7, 8, 9}),
                                           record(1, 6, {4, 5, 6})});
  EXPECT_EQ(told_by(hub, {FragmentId(2), StepIndex(10)}), (std::vector<std::uint32_t>{7, 8, 9}));
  hub.hub().restore({});
  EXPECT_EQ(told_by(hub, {FragmentId(2), StepIndex(10)}), (std::vector<std::uint32_t>{1, 1, 1}));
}

}  // namespace
}  // namespace isthmus::this_file
