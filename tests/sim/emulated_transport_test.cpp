// SPDX-License-Identifier: Apache-2.0
// A declared link before a transport: in virtual time its frames come when the link's arithmetic
// says.
#include "sim/emulated_transport.h"

#include <gmock/gmock.h>

#include <memory>
#include <vector>

#include "isthmus/errors.h"
#include "sim/world.h"
#include "transport/wire/in_process_transport.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;

// A frame of 1000 bytes leaves in 1 ms and arrives 10 ms later.
constexpr DirectedLink kLink{.bits_per_s = 8'000'000, .one_way = milliseconds(10)};

FrameBytes frame_of(std::uint8_t tag) {
  return std::make_shared<std::vector<std::byte>>(1000, std::byte{tag});
}

/// Two members joined by `links` in both directions.
std::vector<std::unique_ptr<Transport>> pair_of(Runtime& runtime, const DirectedLink& link) {
  std::vector<std::unique_ptr<Transport>> members;
  for (auto& below : make_in_process_transports(runtime, 2)) {
    members.push_back(emulate_links(runtime, std::move(below), {.links = {link, link}}));
  }
  return members;
}

TEST(EmulatedTransport, FramesComeWhenTheLinkLetsThem) {
  SimWorld world(1);
  world.run([&] {
    auto members = pair_of(world, kLink);
    std::vector<Duration> came;
    const std::unique_ptr<Task> receiver = world.spawn("receiver", [&] {
      for (int i = 0; i < 4; ++i) {
        const auto received = members[1]->receive(kNever);
        ASSERT_TRUE(received.has_value());
        EXPECT_EQ(std::to_integer<int>((*received->bytes)[0]), i);
        EXPECT_EQ(received->from, WorkerId(0));
        came.push_back(world.clock().now().time_since_epoch());
      }
    });
    for (std::uint8_t tag = 0; tag < 3; ++tag) members[0]->send(WorkerId(1), frame_of(tag));
    world.sleep_until(TimePoint(milliseconds(50)));
    members[0]->send(WorkerId(1), frame_of(3));  // the link has been idle
    receiver->join();
    EXPECT_THAT(came, testing::ElementsAre(milliseconds(11), milliseconds(12), milliseconds(13),
                                           milliseconds(61)));
  });
}

TEST(EmulatedTransport, ACloseLetsHeldFramesOutAndThenTells) {
  SimWorld world(1);
  world.run([&] {
    auto members = pair_of(world, kLink);
    members[0]->send(WorkerId(1), frame_of(7));
    members[0]->close();
    members[0]->send(WorkerId(1), frame_of(8));  // too late
    const auto frame = members[1]->receive(kNever);
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(std::to_integer<int>((*frame->bytes)[0]), 7);
    const auto news = members[1]->receive(kNever);
    ASSERT_FALSE(news.has_value());
    EXPECT_EQ(news.error().kind, TransportError::Kind::kPeerLost);
  });
}

TEST(EmulatedTransport, ACloseDoesNotWaitForASlowLinkForEver) {
  SimWorld world(1);
  world.run([&] {
    auto members = pair_of(world, {.bits_per_s = 1, .one_way = milliseconds(1)});
    members[0]->send(WorkerId(1), frame_of(1));  // 8,000 s
    members[0].reset();
    EXPECT_LE(world.clock().now(), TimePoint(std::chrono::seconds(6)));
  });
}

TEST(EmulatedTransport, ALinkThatCannotBeIsRefused) {
  SimWorld world(1);
  world.run([&] {
    auto below = make_in_process_transports(world, 2);
    EXPECT_THROW(static_cast<void>(emulate_links(world, std::move(below[0]),
                                                 {.links = {kLink, {.bits_per_s = -1}}})),
                 ConfigError);
  });
}

}  // namespace
}  // namespace isthmus::this_file
