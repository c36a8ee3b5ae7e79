// SPDX-License-Identifier: Apache-2.0
// Who gets in: processes that are started again or twice, refusals that pass, greetings that a
// connection does not take at once, and what a stranger is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "link_net.h"
#include "transport/wire/frame.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace link_test;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Member 1 of 2 as another process greets member 0.
void greet_as_another(Net& net, std::uint8_t process) {
  Hello hello{.protocol = kFrameVersion,
              .members = 2,
              .from = WorkerId(1),
              .to = WorkerId(0),
              .streams = 3};
  hello.configuration = std::string(64, '0');
  hello.incarnation.bytes[0] = process;
  net.say(0, {.kind = LinkKind::kHello, .number = 1},
          std::make_shared<const std::vector<std::byte>>(write_hello(hello)));
}
RefusedField refusal_of(const Message& message) {
  const auto refusal = read_refusal(message.bytes());
  return kind_of(message) == LinkKind::kRefuse && refusal ? refusal->field
                                                          : RefusedField::kProtocol;
}

TEST(LinkJoining, AnotherProcessDoesNotTakeThePlaceOfOneThatIsHeard) {
  Net net(2);
  net.settle();
  greet_as_another(net, 99);
  EXPECT_EQ(refusal_of(net.to_stranger.back()), RefusedField::kIncarnation);
  net.say(0, {.kind = LinkKind::kData}, frame_of(777, 10));
  for (std::uint32_t i = 0; i < 6; ++i) net.engine(1).submit(WorkerId(0), frame_of(i, 10));
  net.settle();
  for (int i = 0; i < 5; ++i) net.pass(1s);
  EXPECT_EQ(net.node(0).delivered, up_to(6));
  EXPECT_TRUE(net.node(0).gone.empty());
  EXPECT_TRUE(net.node(1).gone.empty());
}

// A former session that cannot say goodbye to who is gone would be met by its next process, which
// counts it as lost a moment later, and whoever has followed it by then.
TEST(LinkJoining, WhoEndsIsNotMetByANewProcess) {
  for (const bool finds_it : {true, false}) {
    Net net(2, [](MemberOptions& options) { options.readmits = true; });
    net.settle();
    net.kill(1);
    net.settle();
    net.engine(0).close(net.now);
    net.pass(1s);
    EXPECT_FALSE(net.engine(0).all_told());
    net.start(1);
    for (int k = 0; k < 3 && !finds_it; ++k) net.set_up(0, 1, k, false);
    net.settle();
    for (int s = 0; s < (finds_it ? 1 : 4); ++s) net.pass(1s);
    EXPECT_TRUE(net.engine(0).all_told()) << "it waits for who is gone";
    for (int s = 0; s < 4; ++s) net.pass(1s);
    net.node(1).take_all();
    EXPECT_FALSE(net.all_joined(1)) << "it was met " << finds_it;
    EXPECT_FALSE(net.join_error(1)) << "it may meet the next one";
    EXPECT_THAT(net.node(1).story[0], IsEmpty());
  }
}

TEST(LinkJoining, AProcessStartedAgainTakesThePlaceOfItsSilentPredecessor) {
  Net net(2);
  net.settle();
  net.now += 4s;  // without a word from member 1
  net.engine(0).tick(net.now);
  greet_as_another(net, 99);
  ASSERT_EQ(kind_of(net.to_stranger.back()), LinkKind::kWelcome);
  // The predecessor was only slow: its frames are not mixed with the other's, and it is told.
  for (std::uint32_t i = 0; i < 6; ++i) net.engine(1).submit(WorkerId(0), frame_of(i, 10));
  for (std::uint64_t i = 0; i < 3; ++i) {
    net.say(0, {.kind = LinkKind::kData, .number = i, .amount = i},
            frame_of(200 + static_cast<std::uint32_t>(i), 10));
  }
  net.settle();
  EXPECT_EQ(net.node(0).delivered, (std::vector<std::uint32_t>{200, 201, 202}));
  EXPECT_THAT(net.node(1).gone[0], HasSubstr("another process"));
}

TEST(LinkJoining, AProcessThatWasReplacedDoesNotComeBack) {
  Net net(2);
  net.settle();
  net.now += 4s;
  net.engine(0).tick(net.now);
  greet_as_another(net, 99);
  net.now += 4s;  // now that one is silent, too
  net.engine(0).tick(net.now);
  net.pass(1s);
  EXPECT_THAT(net.node(1).gone[0], HasSubstr("another process"));
}

TEST(LinkJoining, AFrameThatWaitsForAnEarlierOneKeepsOtherProcessesOut) {
  Net net(2);
  net.settle();
  for (std::uint32_t i = 0; i < 3; ++i) net.engine(1).submit(WorkerId(0), frame_of(100 + i, 10));
  for (int k = 0; k < 3; ++k) {
    const Connection& connection = net.at(WorkerId(1), WorkerId(0), k);
    const Message& message = connection.forward.front();
    if (parse_link_message(message.header, message.bytes())->number == 1) net.move(1, 0, k, 1);
  }
  ASSERT_GT(net.engine(0).bytes_held(WorkerId(1)), 0u);
  net.now += 4s;
  net.engine(0).tick(net.now);
  greet_as_another(net, 99);
  EXPECT_EQ(refusal_of(net.to_stranger.back()), RefusedField::kIncarnation);
}

TEST(LinkJoining, ARefusalByAProcessThatVanishesIsNotTheLastWord) {
  Net net(2);
  const Message message = message_of(
      {.kind = LinkKind::kRefuse},
      std::make_shared<const std::vector<std::byte>>(
          write_refusal({RefusedField::kGivenUp, "member 1 has counted this one as lost"})));
  net.engine(0).from_stream(WorkerId(1), message.header, message.bytes(), net.now);
  EXPECT_FALSE(net.join_error(0));
  EXPECT_THAT(net.missing(0, std::vector<std::string>{"tcp://a:1", "tcp://b:2"}),
              HasSubstr("member 1 has counted this one as lost"));
  net.settle();
  EXPECT_TRUE(net.all_joined(0));
}

TEST(LinkJoining, WhoWasTakenForASecondProcessGetsInOnceTheFirstIsSilent) {
  Net net(2);
  greet_as_another(net, 99);  // a predecessor that dies now
  net.settle();
  EXPECT_FALSE(net.all_joined(1));
  EXPECT_FALSE(net.join_error(1));
  for (int second = 0; second < 5; ++second) net.pass(1s);
  EXPECT_TRUE(net.all_joined(1));
  EXPECT_TRUE(net.all_joined(0));
}

TEST(LinkJoining, AGreetingThatIsNotTakenAtOnceGoesWhenThereIsRoom) {
  Net net(2);
  for (int k = 0; k < 3; ++k) {
    Connection& connection = net.at(WorkerId(0), WorkerId(1), k);
    for (int i = 0; i < 4; ++i) {
      connection.forward.push_back(message_of({.kind = LinkKind::kClosed}, nullptr));
    }
  }
  net.settle();  // without a heartbeat
  EXPECT_TRUE(net.all_joined(0));
}

TEST(LinkJoining, AStrangerIsNotToldTheRunId) {
  Net net(2, [](MemberOptions& options) { options.identity.run.bytes[0] = 0x5e; });
  net.settle();
  greet_as_another(net, 99);
  const Message& answer = net.to_stranger.back();
  EXPECT_EQ(refusal_of(answer), RefusedField::kRun);
  EXPECT_THAT(read_refusal(answer.bytes())->what, Not(HasSubstr("5e")));
  EXPECT_THAT(net.node(0).events.back().text, HasSubstr("member 0 has 5e00"));
}

// Who leaves takes nothing more: what came before both stood is not to be counted twice then.
/// Member 1 has another configuration, and member 0 hears it before it has dialled it itself.
std::optional<JoinError> error_of_who_refuses(const Net::Tweak& tweak = {}) {
  Net net(2, [&](MemberOptions& options) {
    if (options.self == WorkerId(1)) options.identity.configuration = std::string(64, 'c');
    if (tweak) tweak(options);
  });
  for (int k = 0; k < 3; ++k) net.set_up(0, 1, k, false);
  net.settle();
  EXPECT_TRUE(net.join_error(1));
  return net.join_error(0);
}

// Member 1 may be gone before it can be asked.
TEST(LinkJoining, WhoRefusesAnotherConfigurationKnowsOfIt) {
  const auto error = error_of_who_refuses();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->field, RefusedField::kConfiguration);
  EXPECT_THAT(error->what, HasSubstr("member 1 differs: configuration"));
}

TEST(LinkJoining, WhoMayBeAStrangerEndsNobody) {
  EXPECT_FALSE(error_of_who_refuses([](MemberOptions& options) { options.plaintext = true; }));
  EXPECT_FALSE(error_of_who_refuses([](MemberOptions& options) {
    options.identity.run.bytes[0] = static_cast<std::uint8_t>(options.self.value());
  }));
}

TEST(LinkJoining, WhoLeavesBeforeItHasMetAPeerCountsItsFramesOnce) {
  Net net(2, [](MemberOptions& options) { options.readmits = true; });
  const auto all_but_welcomes_of_1 = [&] {
    for (bool moved = true; moved;) {
      moved = false;
      for (int from = 0; from < 2; ++from) {
        for (int k = 0; k < 3; ++k) {
          for (std::uint32_t which = 0; which < 3; ++which) {
            if (from == 0 && which == 2) continue;
            moved = net.move(from, 1 - from, k, which) || moved;
          }
        }
      }
    }
  };
  all_but_welcomes_of_1();
  ASSERT_TRUE(net.all_joined(1));
  ASSERT_FALSE(net.all_joined(0));
  net.node(1).send(WorkerId(0), frame_of(7, 10));
  all_but_welcomes_of_1();
  net.engine(0).close(net.now);
  net.settle();
  for (int i = 0; i < 2; ++i) net.pass(1s);
  EXPECT_TRUE(net.engine(0).all_told());
  EXPECT_THAT(net.node(0).delivered, IsEmpty());
}

}  // namespace
}  // namespace isthmus::this_file
