// SPDX-License-Identifier: Apache-2.0
// Links whose number of connections changes while frames pass: connections that are dialled later,
// break while they come up, or belong to a process that is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/rng.h"
#include "link_net.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace link_test;

constexpr int kFirst = 3, kMost = 8;

void grows(MemberOptions& options) { options.most_streams = kMost; }
void grows_and_readmits(MemberOptions& options) {
  grows(options);
  options.readmits = true;
  options.gone_after = 2s;
}

std::vector<int> data_by_stream(Net& net) {
  std::vector<int> counts;
  for (int k = 0; k < kMost; ++k) {
    const auto& forward = net.at(WorkerId(0), WorkerId(1), k).forward;
    counts.push_back(static_cast<int>(std::ranges::count_if(
        forward, [](const Message& message) { return kind_of(message) == LinkKind::kData; })));
  }
  return counts;
}
void submit(Net& net, std::uint32_t from, std::uint32_t to) {
  for (std::uint32_t i = from; i < to; ++i) net.engine(0).submit(WorkerId(1), frame_of(i, 100));
}

TEST(LinkGrowing, ConnectionsThatAreAddedCarryFramesAndThoseLeftOutNone) {
  Net net(2, grows);
  net.settle();
  ASSERT_TRUE(net.all_joined(0));
  EXPECT_EQ(net.engine(0).streams_dialled(WorkerId(1)), kFirst);
  EXPECT_TRUE(net.at(WorkerId(0), WorkerId(1), kFirst).id.empty()) << "dialled too early";
  submit(net, 0, 40);
  EXPECT_TRUE(net.engine(0).frames_waited(WorkerId(1)));
  EXPECT_FALSE(net.engine(0).frames_waited(WorkerId(1))) << "not since";
  net.engine(0).use_streams(WorkerId(1), kMost);
  EXPECT_EQ(data_by_stream(net)[kFirst], 0) << "not before it was welcomed";
  net.settle();
  submit(net, 40, 60);
  EXPECT_THAT(data_by_stream(net), ::testing::Each(::testing::Gt(0)));
  net.settle();
  net.engine(0).use_streams(WorkerId(1), kFirst);
  submit(net, 60, 72);
  const std::vector<int> data = data_by_stream(net);
  EXPECT_EQ(std::count(data.begin() + kFirst, data.end(), 0), kMost - kFirst);
  net.settle();
  EXPECT_EQ(net.node(1).delivered, up_to(72));
  EXPECT_EQ(net.engine(1).streams_dialled(WorkerId(0)), kFirst) << "each direction has its number";
}

// The number changes, connections break while they come up or carry frames, and their news is late.
TEST(LinkGrowing, FramesComeOnceAndInOrderWhileTheNumberChanges) {
  constexpr std::uint32_t kFrames = 120;
  std::uint64_t changes = 0, breaks = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Rng rng{seed, Stream::kTestData};
    Net net(2, grows);
    std::uint32_t submitted = 0;
    for (std::uint64_t step = 0; step < 60000 && net.node(1).delivered.size() < kFrames; ++step) {
      const auto words = rng.words(step);
      const int from = static_cast<int>(words[0] % 2);
      const int stream = static_cast<int>(words[1] % kMost);
      const bool trouble = step < 20000;  // then the network is calm, and all must arrive
      if (words[2] % 64 == 0 && submitted < kFrames) {
        net.engine(0).submit(WorkerId(1), frame_of(submitted++, words[3] % 300000));
      } else if (words[2] % 256 == 1 && trouble &&
                 stream < net.engine(from).streams_dialled(WorkerId(1 - from))) {
        net.set_up(from, 1 - from, stream, false);
        net.set_up(from, 1 - from, stream, true);
        ++breaks;
      } else if (words[2] % 256 == 2 && net.engine(0).have_joined(net.all)) {
        net.engine(0).use_streams(WorkerId(1), 1 + static_cast<int>(words[3] % kMost));
        ++changes;
      } else if (words[2] % 64 == 3) {
        net.now += 300ms;
        net.engine(from).tick(net.now);
        net.node(1).take_all();
      } else {
        net.move(from, 1 - from, stream, words[3]);
      }
      ASSERT_LE(net.engine(1).bytes_held(WorkerId(0)), kSmallestWindow);
    }
    ASSERT_EQ(net.node(1).delivered, up_to(kFrames)) << "seed " << seed;
    ASSERT_TRUE(net.node(0).gone.empty()) << "seed " << seed;
  }
  EXPECT_GT(changes, 500u);
  EXPECT_GT(breaks, 500u);
}

TEST(LinkGrowing, AConnectionThatDiesInGrowthHoldsNothingUp) {
  Net net(2, grows);
  net.settle();
  net.engine(0).use_streams(WorkerId(1), kMost);
  net.set_up(0, 1, kMost - 1, false);  // before it stood
  net.settle();
  submit(net, 0, 40);
  net.set_up(0, 1, kFirst, false);  // with frames on it
  net.settle();
  EXPECT_EQ(net.node(1).delivered, up_to(40));
}

TEST(LinkGrowing, WhenThoseInUseBreakTheOthersCarryFrames) {
  Net net(2, grows);
  net.settle();
  net.engine(0).use_streams(WorkerId(1), kMost);
  net.settle();
  net.engine(0).use_streams(WorkerId(1), kFirst);
  submit(net, 0, 10);
  for (int k = 0; k < kFirst; ++k) net.set_up(0, 1, k, false);
  net.settle();
  submit(net, 10, 20);
  net.settle();
  EXPECT_EQ(net.node(1).delivered, up_to(20));
}

TEST(LinkGrowing, WhoHasNotJoinedIsDialledNoMore) {
  Net net(2, grows);
  net.engine(0).use_streams(WorkerId(1), kMost);
  EXPECT_EQ(net.engine(0).streams_dialled(WorkerId(1)), kFirst);
  EXPECT_EQ(net.engine(0).streams_in_use(WorkerId(1)), kFirst);
  net.settle();
  EXPECT_TRUE(net.all_joined(0));
}

TEST(LinkGrowing, ANewProcessIsMetOnTheFirstConnections) {
  Net net(2, grows_and_readmits);
  net.settle();
  net.engine(0).use_streams(WorkerId(1), kMost);
  net.settle();
  net.kill(1);
  for (int i = 0; i < 4; ++i) net.pass(1s);
  ASSERT_TRUE(net.node(0).gone.contains(1));
  net.engine(0).use_streams(WorkerId(1), kMost);  // it is gone: nothing is dialled
  net.start(1);
  net.settle();
  for (int i = 0; i < 3; ++i) net.pass(1s);
  ASSERT_TRUE(net.all_joined(0));
  EXPECT_EQ(net.engine(0).streams_dialled(WorkerId(1)), kFirst);
  EXPECT_EQ(net.engine(0).streams_in_use(WorkerId(1)), kFirst);
  net.node(0).take_all();
  for (std::uint32_t i = 0; i < 5; ++i) net.node(0).send(WorkerId(1), frame_of(i, 10));
  net.engine(0).use_streams(WorkerId(1), kMost);
  net.settle();
  EXPECT_EQ(net.node(1).delivered, up_to(5));
}

// A connection is back after five round trips.
TEST(LinkGrowing, ConnectionsToAFarMemberHaveLongerToComeBack) {
  Net net(2, [](MemberOptions& options) { options.gone_after = 2s; });
  net.settle();
  net.engine(0).measured(WorkerId(1), 600ms);
  for (int k = 0; k < 3; ++k) net.set_up(0, 1, k, false);
  net.settle();
  net.pass(4s);
  EXPECT_TRUE(net.node(0).gone.empty());
  net.pass(500ms);
  EXPECT_THAT(net.node(0).gone[1], ::testing::HasSubstr("have not come back for 4.5 s: cut"));
}

}  // namespace
}  // namespace isthmus::this_file
