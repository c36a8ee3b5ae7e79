// SPDX-License-Identifier: Apache-2.0
// Lines that lose packets, in virtual time: TCP sends them again, and all behind them waits, so
// frames and heartbeats come late and in lumps. Nobody may be counted as gone for that.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/base/rng.h"
#include "link_net.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace link_test;

constexpr int kMembers = 3;
constexpr std::size_t kFrameBytes = 64 << 10;
constexpr int kFramesOfRound = 4;  // to each other member

struct Line {
  double loss = 0;
  Duration rtt = 300ms;
  double bits_per_s = 20e6;
};

/// Members whose connections bring messages as late as TCP does over such a line.
class LossyNet {
 public:
  LossyNet(const Line& line, std::uint64_t seed, const Net::Tweak& tweak)
      : net_(kMembers, tweak), line_(line), rng_(seed, Stream::kTestData) {}

  [[nodiscard]] Net& net() { return net_; }
  [[nodiscard]] Duration longest_silence() const { return longest_silence_; }

  /// Time goes on by a step, and what has arrived by then is read.
  void step() {
    constexpr Duration kStep = 5ms;
    net_.now += kStep;
    for (auto& [place, connection] : net_.connections) {
      const auto& [from, to, stream] = place;
      bring(from, to, stream, 0, connection.news.empty());
      bring(from, to, stream, 1, connection.forward.empty());
      bring(from, to, stream, 2, connection.backward.empty());
    }
    for (int m = 0; m < kMembers; ++m) {
      if (net_.engine(m).next_tick() <= net_.now) net_.engine(m).tick(net_.now);
      net_.node(m).take_all();
    }
  }

 private:
  /// What is first in that direction of a connection, once it is there.
  void bring(int from, int to, int stream, std::uint32_t which, bool empty) {
    std::optional<TimePoint>& due = due_[{from, to, stream, which}];
    if (empty) {
      due.reset();
      return;
    }
    const Connection& connection = net_.at(WorkerId(from), WorkerId(to), stream);
    if (!due) {
      const auto& queue = which == 1 ? connection.forward : connection.backward;
      const std::size_t bytes =
          which == 0 ? 0 : sizeof(LinkHeaderBytes) + queue.front().bytes().size();
      due = net_.now + transit(bytes);
    }
    if (*due > net_.now) return;
    due.reset();
    if (which > 0) hear(which == 1 ? from : to, which == 1 ? to : from);
    (void)net_.move(from, to, stream, which);
  }
  /// A packet that is lost costs a round trip where others behind it tell of the gap, and a
  /// retransmission timeout where none do, or where the copy is lost too: each is twice as long.
  Duration transit(std::size_t bytes) {
    constexpr std::size_t kPacket = 1448;
    const std::size_t packets = bytes / kPacket + 1;
    Duration time =
        line_.rtt / 2 + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
                            static_cast<double>(bytes) * 8 / line_.bits_per_s));
    for (std::size_t p = 0; p < packets; ++p) {
      Duration timeout = line_.rtt + 200ms;
      for (int copies = 0; rng_.uniform(draws_++) < line_.loss; ++copies) {
        const bool told = copies == 0 && p + 3 < packets;
        time += told ? line_.rtt : timeout;
        if (!told) timeout *= 2;
      }
    }
    return time;
  }
  void hear(int speaker, int listener) {
    TimePoint& last = heard_.emplace(std::pair(speaker, listener), net_.now).first->second;
    longest_silence_ = std::max(longest_silence_, net_.now - last);
    last = net_.now;
  }

  Net net_;
  const Line line_;
  const Rng rng_;
  std::uint64_t draws_ = 0;
  std::map<std::tuple<int, int, int, std::uint32_t>, std::optional<TimePoint>> due_;
  std::map<std::pair<int, int>, TimePoint> heard_;
  Duration longest_silence_{0};
};

struct Story {
  int rounds = 0;  // that all had the frames of
  std::vector<std::string> gone;
  Duration longest_silence{0};
};

/// Rounds in which each member sends some frames to each other one, and computes for a while when
/// it has all of theirs.
Story train(const Line& line, int rounds, const Net::Tweak& tweak) {
  LossyNet lossy(line, 7, tweak);
  Net& net = lossy.net();
  for (int patience = 0;
       patience < 10000 && !(net.all_joined(0) && net.all_joined(1) && net.all_joined(2));
       ++patience) {
    lossy.step();
  }
  Story story;
  const Rng pauses{11, Stream::kTestData};
  const auto gone = [&] {
    return std::ranges::any_of(net.nodes, [](const auto& node) { return !node->gone.empty(); });
  };
  for (int round = 0; round < rounds && !gone(); ++round) {
    for (int from = 0; from < kMembers; ++from) {
      for (int to = 0; to < kMembers; ++to) {
        for (int k = 0; from != to && k < kFramesOfRound; ++k) {
          const int number = round * kFramesOfRound + k;
          net.node(from).send(WorkerId(to),
                              frame_of(static_cast<std::uint32_t>(number), kFrameBytes));
        }
      }
    }
    const auto expected = static_cast<std::size_t>((round + 1) * kFramesOfRound * (kMembers - 1));
    const auto complete = [&] {
      return std::ranges::all_of(
          net.nodes, [&](const auto& node) { return node->delivered.size() == expected; });
    };
    while (!complete() && !gone()) lossy.step();
    const int pause = static_cast<int>(pauses.words(static_cast<std::uint64_t>(round))[0] % 400);
    for (int i = 0; i < pause; ++i) lossy.step();  // up to 2 s
    story.rounds += complete() ? 1 : 0;
  }
  for (const auto& node : net.nodes) {
    for (const auto& [peer, why] : node->gone) story.gone.push_back(why);
  }
  story.longest_silence = lossy.longest_silence();
  return story;
}

/// As runs have them; one connection a link leaves most to chance.
MemberOptions defaults() { return {}; }
void as_runs(MemberOptions& options) {
  options.streams = 1;
  options.window_bytes = defaults().window_bytes;
  options.dead_after = defaults().dead_after;
  options.gone_after = defaults().gone_after;
  options.heartbeat = defaults().heartbeat;
}

class LossyLinks : public ::testing::TestWithParam<double> {};
INSTANTIATE_TEST_SUITE_P(Loss, LossyLinks, ::testing::Values(0.001, 0.01, 0.05),
                         [](const auto& each) {
                           return each.param == 0.001  ? "OneInAThousand"
                                  : each.param == 0.01 ? "OneInAHundred"
                                                       : "FiveInAHundred";
                         });

TEST_P(LossyLinks, NobodyIsCountedAsGoneInAThousandRounds) {
  const Story story = train({.loss = GetParam()}, 1000, as_runs);
  EXPECT_EQ(story.gone, std::vector<std::string>{});
  EXPECT_EQ(story.rounds, 1000);
}

// That such lines are bad: members hear nothing for more than two heartbeats on one, and on a worse
// one a detector with a third of the patience fails.
TEST(LossyLinks, ALessPatientDetectorWouldBeWrong) {
  const auto less_patient = [](MemberOptions& options) {
    as_runs(options);
    options.dead_after = defaults().dead_after / 3;
  };
  EXPECT_GT(train({.loss = 0.05}, 300, as_runs).longest_silence, 2 * defaults().heartbeat);
  EXPECT_EQ(train({.loss = 0}, 200, less_patient).gone, std::vector<std::string>{});
  EXPECT_FALSE(train({.loss = 0.25}, 200, less_patient).gone.empty());
}

}  // namespace
}  // namespace isthmus::this_file
