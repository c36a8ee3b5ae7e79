// SPDX-License-Identifier: Apache-2.0
// One synchronization and the share of computing it leaves, against closed forms.
#include "plan/sync_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "sim/network.h"
#include "transport/wire/frame.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kRate = 200'000'000;  // bit/s
// Frames of at most 512 KiB have 68 bytes of their own around them, and the last frame of a hop is
// waited for: both are below this share of vectors of 30M values.
constexpr double kFraming = 2e-3;

SyncQuestion ring(std::int64_t values, int members, Duration one_way = Duration(0)) {
  return {.values = values,
          .codec = make_codec("fp32"),
          .members = members,
          .links = uniform_links(members, {.bits_per_s = kRate, .one_way = one_way})};
}

// Each member sends 2 (M - 1) / M vectors to the next one.
TEST(SyncTime, ARingTakesTwoVectorsLessTwoShares) {
  for (const int members : {2, 3, 4, 8}) {
    for (const char* codec : {"fp32", "bf16"}) {
      SyncQuestion question = ring(30'846'720, members);
      question.codec = make_codec(codec);
      const double bits = codec == std::string_view("fp32") ? 32 : 16;
      const double want = 2.0 * (members - 1) / members * 30'846'720 * bits / kRate;
      EXPECT_NEAR(sync_seconds(question), want, kFraming * want) << members << " " << codec;
    }
  }
}

// A long vector never leaves the ring's links idle: one delay in all.
TEST(SyncTime, ARoundTripDelaysARingByOneWayWhereTheLinkNeverRests) {
  const double without = sync_seconds(ring(30'846'720, 4));
  EXPECT_NEAR(sync_seconds(ring(30'846'720, 4, milliseconds(10))) - without, 0.010, 1e-6);
}

// The slowest link sets a ring's pace.
TEST(SyncTime, OneSlowLinkSlowsTheRing) {
  SyncQuestion question = ring(30'846'720, 4);
  question.links[1].bits_per_s = kRate / 4;  // 0 -> 1
  const double want = 1.5 * 30'846'720 * 32 / (kRate / 4.0);
  EXPECT_NEAR(sync_seconds(question), want, 10 * kFraming * want);
  question.links[1].bits_per_s = kRate;
  question.links[2].bits_per_s = kRate / 4;  // 0 -> 2, which no ring by number uses
  EXPECT_DOUBLE_EQ(sync_seconds(question), sync_seconds(ring(30'846'720, 4)));
}

// A reduce of M members sends V / M to each of the others and as much back, over links of its own.
TEST(SyncTime, AReduceIsKnownToAllWhenItIsCommitted) {
  SyncQuestion question = ring(30'846'720, 4, milliseconds(20));
  question.way = SyncWay::kReduce;
  const double want = 2.0 / 4 * 30'846'720 * 32 / kRate;
  // Delays: contributions, results, DONE and COMMIT, of which a full link hides none or one.
  EXPECT_THAT(sync_seconds(question) - want,
              ::testing::AllOf(::testing::Ge(0.059), ::testing::Le(0.081 + kFraming * want)));
}

SyncQuestion reduce_at(std::int64_t bits_per_s, int members, double processor_bits_per_s) {
  return {.values = 16'000'000,
          .codec = make_codec("fp32"),
          .members = members,
          .links = uniform_links(members, {.bits_per_s = bits_per_s}),
          .way = SyncWay::kReduce,
          .processor_bits_per_s = processor_bits_per_s};
}

// 512 Mbit of values: the links need 51 ms at 10 Gbit/s, a processor of 5 Gbit/s 102 ms.
TEST(SyncTime, TheSlowerOfLinksAndProcessorBoundsAReduce) {
  constexpr double kValueBits = 16e6 * 32;
  for (const int members : {2, 4}) {
    const double links_s = sync_seconds(reduce_at(10'000'000'000, members, 0));
    EXPECT_NEAR(links_s, 2.0 / members * kValueBits / 10e9, 0.01 * links_s) << members;
    EXPECT_NEAR(sync_seconds(reduce_at(10'000'000'000, members, 5e9)), kValueBits / 5e9, 1e-6);
    EXPECT_DOUBLE_EQ(sync_seconds(reduce_at(10'000'000'000, members, 500e9)), links_s);
  }
}

// Nothing is sent before it is encoded: a processor takes its time however fast the links are.
TEST(SyncTime, CodecsDoNotChangeTheProcessorsShareOfTheQuestion) {
  SyncQuestion question = reduce_at(1'000'000'000'000, 2, 4e9);
  const double fp32 = sync_seconds(question);
  question.codec = make_codec("int8");
  EXPECT_NEAR(sync_seconds(question), fp32, 1e-6);
}

TEST(SyncTime, GoodputLeavesWhatTcpLeavesOfTheRate) {
  SyncQuestion question = ring(30'846'720, 4);
  for (DirectedLink& link : question.links) link.congestion = Congestion::kCubic;
  const double ideal = sync_seconds(question);
  question.link.model = LinkModel::kTcp;
  // 1448 of 1500 bytes, less 52 of 3000 for the acknowledgements of the other way.
  const double share = 1448.0 / 1500 - 52.0 / 3000;
  EXPECT_NEAR(sync_seconds(question), ideal / share, 0.005 * ideal);
}

TEST(ComputingShare, CountsSyncsOfTheStepsThatCount) {
  const BlockingRun run{.step_s = 0.025, .H = 32, .steps = 150, .skip = 32};
  const ComputingShare share = computing_share(run, 1.5);
  EXPECT_EQ(share.steps, 118);
  EXPECT_EQ(share.syncs, 3);  // after steps 64, 96 and 128
  EXPECT_DOUBLE_EQ(share.share, 118 * 0.025 / (118 * 0.025 + 3 * 1.5));
}

TEST(ComputingShare, OfWholePeriodsIsHStepsOfHStepsAndASync) {
  for (const std::int64_t H : {1, 8, 128}) {
    const BlockingRun run{.step_s = 0.1, .H = H, .steps = 12 * H, .skip = 2 * H};
    const double step = 0.1 * static_cast<double>(H);
    EXPECT_NEAR(computing_share(run, 2).share, step / (step + 2), 1e-12) << H;
  }
  EXPECT_DOUBLE_EQ(computing_share({.step_s = 1, .H = 100, .steps = 99}, 5).share, 1);
  EXPECT_DOUBLE_EQ(computing_share({.step_s = 1, .H = 10, .steps = 99}, 0).share, 1);
}

}  // namespace
}  // namespace isthmus::this_file
