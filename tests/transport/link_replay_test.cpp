// SPDX-License-Identifier: Apache-2.0
// What was said on the links of members is said again, by who has recorded it: without sockets.
// Over sockets: zmq_replay_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "link_net.h"
#include "transport/wire/frame.h"

namespace isthmus::this_file {
namespace {

using namespace link_test;

int events_with(const Net::Node& node, const std::string& text) {
  return static_cast<int>(std::ranges::count_if(node.events, [&](const LinkEvent& event) {
    return event.text.find(text) != std::string::npos;
  }));
}

// Who has heard a member's greeting can say it, the process's own number and all.
TEST(LinkReplay, AGreetingSaidAgainTakesNoConnection) {
  Net net(2);
  net.settle();
  Hello hello{.protocol = kFrameVersion,
              .members = 2,
              .from = WorkerId(1),
              .to = WorkerId(0),
              .streams = 3};
  hello.configuration = std::string(64, '0');
  hello.incarnation = Net::incarnation_of(1);
  for (int time = 1; time <= 3; ++time) {
    net.say(0, {.kind = LinkKind::kHello, .number = 1},
            std::make_shared<const std::vector<std::byte>>(write_hello(hello)));
    EXPECT_EQ(events_with(net.node(0), "has come again"), std::min(time, 2)) << "at 1, 2, 4, ...";
  }
  EXPECT_TRUE(net.to_stranger.empty());
  net.engine(1).submit(WorkerId(0), frame_of(0, 10));
  net.settle();
  EXPECT_EQ(net.node(0).delivered, up_to(1));
  // As it is after a break: the process goes on counting, and is heard.
  net.set_up(1, 0, 0, false);
  net.set_up(1, 0, 0, true);
  net.settle();
  EXPECT_EQ(events_with(net.node(1), "connection 0: accepted"), 2);
  EXPECT_EQ(events_with(net.node(0), "has come again"), 2);
}

TEST(LinkReplay, AFrameSaidAgainOnItsConnectionIsTakenOnce) {
  Net net(2);
  net.settle();
  net.engine(1).use_streams(WorkerId(0), 1);
  for (std::uint32_t i = 0; i < 3; ++i) net.engine(1).submit(WorkerId(0), frame_of(i, 10));
  auto& wire = net.at(WorkerId(1), WorkerId(0), 0).forward;
  ASSERT_EQ(wire.size(), 3u);
  wire.insert(wire.begin() + 1, wire.front());
  net.settle();
  EXPECT_EQ(net.node(0).delivered, up_to(3));
  EXPECT_EQ(events_with(net.node(0), "connection 0: something is missing or has come twice"), 1);
  EXPECT_TRUE(net.node(0).gone.empty());
  EXPECT_TRUE(net.node(1).gone.empty());
}

}  // namespace
}  // namespace isthmus::this_file
