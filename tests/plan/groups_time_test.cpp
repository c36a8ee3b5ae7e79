// SPDX-License-Identifier: Apache-2.0
// How long a reduce in two levels takes: the closed form, the prediction, and the protocol itself
// in virtual time.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "plan/prediction.h"
#include "sim/run_simulated.h"
#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kThin = 10'000'000;  // bit/s, between groups
constexpr std::int64_t kNear = 10 * kThin;
constexpr double kOneWay = 0.04;  // s, between groups
constexpr std::size_t kValues = std::size_t{1} << 22;
constexpr double kWhole = 4.0 * kValues;  // bytes of the vector in fp32

/// Four members, 0 and 1 near one another, 2 and 3.
std::vector<DirectedLink> two_pairs() {
  std::vector<DirectedLink> links;
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      const bool near = from / 2 == to / 2;
      links.push_back({.bits_per_s = near ? kNear : kThin,
                       .one_way = near ? milliseconds(1) : milliseconds(40)});
    }
  }
  return links;
}

struct Timed {
  double seconds = 0;
  std::vector<std::vector<std::uint64_t>> traffic;
  std::vector<float> mean;
};

Timed simulated(const std::vector<std::uint32_t>& groups) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  Timed timed;
  const SimulationResult result =
      run_simulated({.workers = 4,
                     .links = two_pairs(),
                     .exchange = {.retry_interval = kNothingIsLost, .groups = groups}},
                    [&](WorkerContext& context) {
                      const SyncId id{FragmentId(0), StepIndex(1)};
                      const auto mean = context.exchange.wait(
                          context.exchange.begin(testing_support::contribution_of(
                              codec, context.rank, kValues, id, ReductionKind::kReduce)),
                          std::chrono::hours(1));
                      ASSERT_TRUE(mean) << mean.error().what;
                      if (context.rank == WorkerId(0)) timed.mean = mean->values;
                    });
  timed.seconds = std::chrono::duration<double>(result.duration).count();
  timed.traffic = result.traffic;
  return timed;
}

double predicted(const std::vector<std::uint32_t>& groups) {
  PredictionInput input{.workers = 4,
                        .steps = 1,
                        .fragments = {{.elements = kValues}},
                        .groups = groups,
                        .codec = make_codec("fp32"),
                        .step_time = [](WorkerId, StepIndex) { return Duration(0); }};
  input.links = two_pairs();
  return predict(input).predicted_s;
}

// A link between the pairs carries, of each vector's quarter: directly one contribution and one
// result, so half a vector; in two levels half of either, so a quarter of a vector. The near links,
// ten times as fast, have half a vector to carry meanwhile, and what comes before and after is a
// part and the delays: out, back, and twice for the commit.
TEST(GroupsInTime, ThinLinksBetweenPairsCarryHalfAsMuch) {
  const double direct_s = kWhole / 2 * 8 / kThin;
  const double groups_s = kWhole / 4 * 8 / kThin;
  constexpr double kDelays = 4 * kOneWay;
  constexpr double kParts = 0.06;  // headers, parts that wait for the first and follow the last
  const Timed direct = simulated({});
  const Timed groups = simulated({0, 0, 1, 1});
  EXPECT_GE(direct.seconds, direct_s);
  EXPECT_LE(direct.seconds, direct_s * (1 + kParts) + kDelays);
  EXPECT_GE(groups.seconds, groups_s);
  EXPECT_LE(groups.seconds, groups_s * (1 + kParts) + kDelays);
  for (const auto& [from, to] : {std::pair{0u, 2u}, {2u, 0u}, {1u, 2u}, {3u, 1u}}) {
    EXPECT_NEAR(static_cast<double>(direct.traffic[from][to]), kWhole / 2, 0.01 * kWhole);
    EXPECT_NEAR(static_cast<double>(groups.traffic[from][to]), kWhole / 4, 0.01 * kWhole);
  }
  EXPECT_EQ(groups.mean,
            testing_support::naive_mean_in_groups(
                *make_codec("fp32"), {WorkerId(0), WorkerId(1), WorkerId(2), WorkerId(3)},
                {0, 0, 1, 1}, kValues));
}

TEST(GroupsInTime, ThePredictionIsWhatTheProtocolTakes) {
  for (const std::vector<std::uint32_t>& groups :
       {std::vector<std::uint32_t>{}, {0, 0, 1, 1}, {0, 1, 1, 1}, {0, 0, 1, 2}, {0, 1, 0, 1}}) {
    const double measured = simulated(groups).seconds;
    EXPECT_NEAR(predicted(groups), measured, 0.03 * measured) << ::testing::PrintToString(groups);
  }
}

}  // namespace
}  // namespace isthmus::this_file
