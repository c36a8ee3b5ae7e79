// SPDX-License-Identifier: Apache-2.0
// Members that are lost and come back as new processes, or come later than the others: who hears
// of it when, what reaches whom, and who is kept out.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "link_net.h"
#include "transport/wire/frame.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace link_test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void readmits(MemberOptions& options) {
  options.readmits = true;
  options.gone_after = 2s;
}
/// Nobody is lost but by a new process that takes its place.
void readmits_and_waits(MemberOptions& options) { options.readmits = true; }

void seconds_pass(Net& net, int seconds) {
  for (int i = 0; i < seconds; ++i) net.pass(1s);
}
void take_all(Net& net) {
  for (auto& node : net.nodes) {
    if (node) node->take_all();
  }
}
/// Member 1 dies, is counted as lost, and is started again.
void replace_member_1(Net& net) {
  net.kill(1);
  net.settle();
  seconds_pass(net, 3);
  net.start(1);
  net.settle();
  seconds_pass(net, 2);
}
void expect_frames_both_ways(Net& net, std::uint32_t number) {
  take_all(net);
  net.node(0).send(WorkerId(1), frame_of(number, 10));
  net.node(1).send(WorkerId(0), frame_of(number, 10));
  net.settle();
  take_all(net);
  for (int rank = 0; rank < 2; ++rank) {
    const auto& story = net.node(rank).story[1 - rank];
    ASSERT_FALSE(story.empty()) << "member " << rank;
    EXPECT_EQ(story.back(), std::to_string(number)) << "member " << rank;
  }
}
/// Member 1, as this process, greets member 0 on the first of its connections.
RefusedField answer_to(Net& net, int process) {
  Hello hello{.protocol = kFrameVersion,
              .members = net.node(0).engine ? 2 : 0,
              .from = WorkerId(1),
              .to = WorkerId(0)};
  hello.streams = net.streams;
  hello.configuration = std::string(64, '0');
  hello.incarnation = Net::incarnation_of(process);
  net.say(0, {.kind = LinkKind::kHello, .number = 1},
          std::make_shared<const std::vector<std::byte>>(write_hello(hello)));
  const Message& answer = net.to_stranger.back();
  if (kind_of(answer) != LinkKind::kRefuse) return RefusedField::kMalformed;
  return read_refusal(answer.bytes()).value().field;
}

TEST(LinkReturning, ALostMemberComesBackAsANewProcess) {
  Net net(3, readmits);
  net.settle();
  expect_frames_both_ways(net, 7);
  replace_member_1(net);
  take_all(net);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(net.all_joined(rank));
  EXPECT_THAT(net.node(0).story[1], ElementsAre("7", "lost", "back"));
  EXPECT_THAT(net.node(2).story[1], ElementsAre("lost", "back"));
  EXPECT_THAT(net.node(0).story[2], IsEmpty());
  EXPECT_THAT(net.node(1).story[0], IsEmpty());  // to the new process nobody is new
  expect_frames_both_ways(net, 8);
  replace_member_1(net);
  expect_frames_both_ways(net, 9);
  EXPECT_THAT(net.node(0).story[1], ElementsAre("7", "lost", "back", "8", "lost", "back", "9"));
}

TEST(LinkReturning, WithoutReadmissionANewProcessStaysOut) {
  Net net(2, [](MemberOptions& options) { options.gone_after = 2s; });
  net.settle();
  replace_member_1(net);
  take_all(net);
  EXPECT_THAT(net.node(0).story[1], ElementsAre("lost"));
  EXPECT_FALSE(net.all_joined(1));
  EXPECT_EQ(answer_to(net, 50), RefusedField::kGivenUp);
}

// It answers at its predecessor's address, while the others still hold frames for that one.
TEST(LinkReturning, AReturnBeforeAnyoneHasNoticedTheDeathIsALossFirst) {
  Net net(2, readmits_and_waits);
  net.settle();
  for (std::uint32_t i = 0; i < 6; ++i) net.node(0).send(WorkerId(1), frame_of(i, 10));
  net.kill(1);
  net.start(1);
  net.settle();
  seconds_pass(net, 2);
  net.node(0).send(WorkerId(1), frame_of(6, 10));
  net.settle();
  take_all(net);
  EXPECT_THAT(net.node(0).story[1], IsEmpty());
  EXPECT_THAT(net.node(1).story[0], IsEmpty());
  EXPECT_FALSE(net.all_joined(1));
  EXPECT_FALSE(net.join_error(1));
  seconds_pass(net, 3);
  take_all(net);
  EXPECT_THAT(net.node(0).story[1], ElementsAre("lost", "back"));
  EXPECT_THAT(net.node(0).gone[1], HasSubstr("another process has taken its place"));
  EXPECT_TRUE(net.all_joined(1));
  EXPECT_THAT(net.node(1).story[0], IsEmpty());
  expect_frames_both_ways(net, 7);
  EXPECT_THAT(net.node(1).story[0], ElementsAre("7"));
}

TEST(LinkReturning, AMemberThatLeftInOrderReturns) {
  Net net(2, readmits);
  net.settle();
  net.node(1).send(WorkerId(0), frame_of(7, 10));
  net.engine(1).close(net.now);
  net.settle();
  net.kill(1);
  net.start(1);
  seconds_pass(net, 2);
  take_all(net);
  EXPECT_THAT(net.node(0).story[1], ElementsAre("7", "lost", "back"));
  expect_frames_both_ways(net, 8);
}

TEST(LinkReturning, WhoeverIsReplacedIsKeptOut) {
  Net net(2, readmits);
  net.settle();
  const ConnectionId old = net.at(WorkerId(1), WorkerId(0), 0).id;
  const int former = net.node(1).process;
  replace_member_1(net);
  // Frozen in between, it goes on where it was; then it says who it is.
  const Message data = message_of({.kind = LinkKind::kData}, frame_of(777, 10));
  net.engine(0).from_connection(old, data.header, data.bytes(), net.now, WorkerId(1));
  EXPECT_EQ(answer_to(net, former), RefusedField::kIncarnation);
  seconds_pass(net, 1);
  take_all(net);
  EXPECT_THAT(net.node(0).story[1], ElementsAre("lost", "back"));
  net.kill(1);
  seconds_pass(net, 3);
  EXPECT_EQ(answer_to(net, former), RefusedField::kIncarnation);  // nor while nobody else is there
  EXPECT_EQ(answer_to(net, former + 1), RefusedField::kGivenUp);
}

TEST(LinkReturning, AProcessThatWasCountedAsLostMustStartAnew) {
  Net net(2, [](MemberOptions& options) {
    options.readmits = true;
    if (options.self == WorkerId(0)) options.dead_after = 10s;
  });
  net.settle();
  for (int k = 0; k < 3; ++k) {  // silence in both directions
    net.at(WorkerId(1), WorkerId(0), k).up = false;
    net.at(WorkerId(0), WorkerId(1), k).up = false;
  }
  seconds_pass(net, 10);
  for (int k = 0; k < 3; ++k) net.set_up(1, 0, k, true);
  seconds_pass(net, 5);
  take_all(net);
  EXPECT_THAT(net.node(0).story[1], ElementsAre("lost"));
  EXPECT_THAT(net.node(1).story[0], ElementsAre("lost"));
  EXPECT_THAT(net.node(1).gone[0], HasSubstr("has counted this one as lost"));
  net.kill(1);
  net.start(1);
  seconds_pass(net, 2);
  expect_frames_both_ways(net, 7);
}

// What its owner has not seen yet changes nothing of what belongs together.
TEST(LinkReturning, AnOwnerThatIsBehindMixesNoProcesses) {
  Net net(2, readmits);
  net.settle();
  for (std::uint32_t i = 0; i < 5; ++i) net.node(1).send(WorkerId(0), frame_of(i, 10));
  net.settle();
  replace_member_1(net);
  net.node(0).send(WorkerId(1), frame_of(100, 10));  // before it has read the news
  for (std::uint32_t i = 0; i < 3; ++i) net.node(1).send(WorkerId(0), frame_of(200 + i, 10));
  net.settle();
  EXPECT_EQ(net.engine(0).bytes_held(WorkerId(1)), 3 * link_charge(14));
  take_all(net);
  expect_frames_both_ways(net, 300);
  EXPECT_THAT(net.node(0).story[1],
              ElementsAre("0", "1", "2", "3", "4", "lost", "back", "200", "201", "202", "300"));
  EXPECT_EQ(net.engine(0).bytes_held(WorkerId(1)), 0u);
  EXPECT_THAT(net.node(1).story[0], ElementsAre("300"));
}

TEST(LinkReturning, FramesOfAReturnWaitForItsNews) {
  Net net(2, readmits);
  net.settle();
  net.kill(1);
  seconds_pass(net, 3);
  net.start(1);
  const auto all_but_the_last_welcome = [&] {
    for (bool moved = true; moved;) {
      moved = false;
      for (int from = 0; from < 2; ++from) {
        for (int k = 0; k < 3; ++k) {
          for (std::uint32_t which = 0; which < 3; ++which) {
            if (from == 0 && k == 2 && which == 2) continue;
            moved = net.move(from, 1 - from, k, which) || moved;
          }
        }
      }
    }
  };
  all_but_the_last_welcome();
  net.now += 1s;
  for (int rank = 0; rank < 2; ++rank) net.engine(rank).tick(net.now);
  all_but_the_last_welcome();
  ASSERT_TRUE(net.all_joined(1));
  net.node(1).send(WorkerId(0), frame_of(7, 10));
  all_but_the_last_welcome();
  net.node(0).take_all();
  EXPECT_THAT(net.node(0).story[1], ElementsAre("lost"));
  net.settle();
  net.node(0).take_all();
  EXPECT_THAT(net.node(0).story[1], ElementsAre("lost", "back", "7"));
}

TEST(LinkReturning, AMemberThatComesLaterIsNews) {
  Net net(3, readmits);
  net.kill(2);
  net.settle();
  const std::array here{WorkerId(0), WorkerId(1)};
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(net.engine(rank).have_joined(here));
    EXPECT_THAT(net.engine(rank).begin_without_absent(), ElementsAre(WorkerId(2)));
    net.node(rank).send(WorkerId(2), frame_of(5, 10));
  }
  seconds_pass(net, 60);
  EXPECT_THAT(net.node(0).gone, IsEmpty());
  EXPECT_THAT(net.node(0).held, IsEmpty());
  net.start(2);
  net.settle();
  take_all(net);
  EXPECT_TRUE(net.all_joined(2));
  net.node(0).send(WorkerId(2), frame_of(6, 10));
  net.node(2).send(WorkerId(0), frame_of(6, 10));
  net.settle();
  take_all(net);
  EXPECT_THAT(net.node(0).story[2], ElementsAre("back", "6"));
  EXPECT_THAT(net.node(1).story[2], ElementsAre("back"));
  EXPECT_THAT(net.node(2).story[0], ElementsAre("6"));
  EXPECT_THAT(net.node(0).story[1], IsEmpty());
}

TEST(LinkReturning, OneWhoIsNotAwaitedMayBeRefused) {
  Net net(3, [](MemberOptions& options) {
    options.readmits = true;
    if (options.self == WorkerId(2)) options.identity.layout.bytes[0] = 9;
  });
  net.settle();
  const std::array awaited{WorkerId(0), WorkerId(1)};
  EXPECT_FALSE(net.engine(0).join_error(awaited));
  EXPECT_TRUE(net.engine(0).have_joined(awaited));
  ASSERT_TRUE(net.join_error(0));
  EXPECT_EQ(net.join_error(0)->peer, WorkerId(2));
}

// Three members under random cuts, deaths, restarts, slow owners and late heartbeats. The number of
// a frame says which process sent it, and how many it had sent since it learnt that the other is
// back. So each owner has to see, of each other: frames 0, 1, 2, ... of one process; "lost";
// "back"; the same of a later process; and in the end all of them.
struct Sweep {
  static constexpr int kMembers = 3;
  Net net{kMembers, readmits_and_waits};
  std::map<std::array<int, 3>, std::uint32_t> sent;  // by process, peer and returns of that

  void send(int from, int to) {
    Net::Node& node = net.node(from);
    const auto number = sent[{node.process, to, static_cast<int>(node.known[to])}]++;
    node.send(WorkerId(to), frame_of(static_cast<std::uint32_t>(node.process) << 16 | number, 50));
  }
  void step(const std::array<std::uint32_t, 4>& words, bool trouble) {
    const int from = static_cast<int>(words[0] % kMembers);
    const int to = static_cast<int>((from + 1 + words[1] % 2) % kMembers);
    const int stream = static_cast<int>(words[1] / 2 % 3);
    if (words[2] % 8192 == 0 && trouble) {
      if (!net.lives(from)) return;
      check(from, false);
      net.kill(from);
    } else if (!net.lives(from)) {
      if (words[2] % 256 == 1 || !trouble) net.start(from);
    } else if (words[2] % 64 == 2 && trouble) {
      send(from, to);
    } else if (words[2] % 512 == 3 && trouble && net.at(WorkerId(from), WorkerId(to), stream).up) {
      net.set_up(from, to, stream, false);
      net.set_up(from, to, stream, true);
    } else if (words[2] % 128 == 4) {
      net.node(from).take_all();
    } else if (words[2] % 32 == 5) {
      net.now += 100ms;
      net.engine(from).tick(net.now);
    } else {
      net.move(from, to, stream, words[3]);
    }
  }
  /// What has been seen by members that end, or now by the living. `end`: all must have come.
  void check(int at, bool end) {
    for (int peer = 0; peer < kMembers; ++peer) {
      if (at == peer) continue;
      const auto& story = net.node(at).story[peer];
      ASSERT_EQ(fault_of(at, peer, end), "")
          << "member " << at << " of member " << peer << ": " << ::testing::PrintToString(story);
      backs += std::ranges::count(story, "back");
      lines += story.size();
    }
  }
  /// Empty: nothing is wrong with what `at` has seen of `peer`.
  [[nodiscard]] std::string fault_of(int at, int peer, bool end) {
    int process = -1;
    std::uint32_t next = 0;
    bool lost = false;
    for (const std::string& line : net.node(at).story[peer]) {
      if (line == "lost" || line == "back") {
        if (lost == (line == "lost")) return line + " twice";
        lost = line == "lost";
        next = 0;
        continue;
      }
      const auto number = static_cast<std::uint32_t>(std::stoul(line));
      const int by = static_cast<int>(number >> 16);
      if (lost) return "a frame of one who is lost";
      if (next == 0 ? by <= process : by != process) return "a frame of another process";
      if ((number & 0xffff) != next) return "a frame out of order";
      process = by;
      ++next;
    }
    if (!end) return {};
    Net::Node& other = net.node(peer);
    const auto known = static_cast<int>(other.known[at]);
    return lost                                       ? "still lost"
           : next != sent[{other.process, at, known}] ? "not all frames have come"
                                                      : "";
  }
  std::ptrdiff_t backs = 0;
  std::size_t lines = 0;
};

TEST(LinkReturning, OwnersSeeOneProcessAfterTheOther) {
  constexpr std::uint64_t kTrouble = 150000, kCalm = 5000;
  std::ptrdiff_t backs = 0;
  std::size_t lines = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Rng rng{seed, Stream::kTestData};
    Sweep sweep;
    for (std::uint64_t step = 0; step < kTrouble + kCalm; ++step) {
      const auto words = rng.words(step);
      sweep.step({words[0], words[1], words[2], words[3]}, step < kTrouble);
      ASSERT_FALSE(HasFatalFailure());
    }
    for (int second = 0; second < 10; ++second) sweep.net.pass(1s);
    take_all(sweep.net);
    for (int rank = 0; rank < Sweep::kMembers; ++rank) {
      ASSERT_NO_FATAL_FAILURE(sweep.check(rank, true));
    }
    backs += sweep.backs;
    lines += sweep.lines;
  }
  EXPECT_GT(backs, 500);
  EXPECT_GT(lines, 50000u);
}

}  // namespace
}  // namespace isthmus::this_file
