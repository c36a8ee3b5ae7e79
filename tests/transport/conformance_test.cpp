// SPDX-License-Identifier: Apache-2.0
// What every transport does: the same bodies, once a world.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance_worlds.h"

namespace isthmus::testing_support::this_file {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

FrameBytes frame_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
}

FrameBytes numbered(int number) { return frame_of(std::to_string(number)); }

std::string text_of(const ReceivedFrame& frame) {
  return {reinterpret_cast<const char*>(frame.bytes->data()), frame.bytes->size()};
}

class TransportConformance : public ::testing::TestWithParam<WorldKind> {
 protected:
  using Endpoints = std::vector<std::unique_ptr<Transport>>;
  using Body = std::function<void(Endpoints&, Runtime&)>;

  void SetUp() override {
    if (!GetParam().absent.empty()) GTEST_SKIP() << GetParam().absent;
  }
  void run(int members, const Body& body) {
    const std::unique_ptr<World> world = GetParam().make();
    world->run([&] {
      Endpoints ends = world->endpoints(members);
      body(ends, world->runtime());
    });
  }
};

TEST_P(TransportConformance, EndpointsKnowThemselves) {
  run(3, [](Endpoints& ends, Runtime&) {
    ASSERT_EQ(ends.size(), 3U);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ends[static_cast<std::size_t>(rank)]->self(), WorkerId(rank));
      EXPECT_EQ(ends[static_cast<std::size_t>(rank)]->size(), 3);
    }
  });
}

TEST_P(TransportConformance, AFrameArrivesWithItsBytesAndItsSender) {
  run(2, [](Endpoints& ends, Runtime&) {
    ends[1]->send(WorkerId(0), frame_of("delta"));
    const auto received = ends[0]->receive(kNever);
    ASSERT_TRUE(received);
    EXPECT_EQ(received->from, WorkerId(1));
    EXPECT_EQ(text_of(*received), "delta");
  });
}

TEST_P(TransportConformance, OrderBetweenAPairIsKeptAndNothingIsLost) {
  constexpr int kFrames = 500;
  run(2, [](Endpoints& ends, Runtime& runtime) {
    const auto sender = runtime.spawn("sender", [&] {
      for (int i = 0; i < kFrames; ++i) ends[0]->send(WorkerId(1), numbered(i));
    });
    for (int i = 0; i < kFrames; ++i) {
      const auto received = ends[1]->receive(kNever);
      ASSERT_TRUE(received);
      ASSERT_EQ(text_of(*received), std::to_string(i));
    }
  });
}

TEST_P(TransportConformance, AnEmptyFrameAndTheBiggestOneArrive) {
  run(2, [](Endpoints& ends, Runtime&) {
    std::vector<std::byte> big(kMaxFramePayload + 64);
    for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<std::byte>(i * 31 % 251);
    ends[0]->send(WorkerId(1), frame_of(""));
    ends[0]->send(WorkerId(1), std::make_shared<std::vector<std::byte>>(big));
    const auto empty = ends[1]->receive(kNever);
    ASSERT_TRUE(empty);
    EXPECT_TRUE(empty->bytes->empty());
    const auto received = ends[1]->receive(kNever);
    ASSERT_TRUE(received);
    EXPECT_TRUE(std::ranges::equal(*received->bytes, big));
  });
}

TEST_P(TransportConformance, ReceiveGivesUpAtItsDeadline) {
  run(2, [](Endpoints& ends, Runtime& runtime) {
    const TimePoint deadline = runtime.clock().now() + milliseconds(5);
    const auto received = ends[0]->receive(deadline);
    ASSERT_FALSE(received);
    EXPECT_EQ(received.error().kind, TransportError::Kind::kDeadlineExceeded);
    EXPECT_GE(runtime.clock().now(), deadline);
  });
}

TEST_P(TransportConformance, CloseWakesTheOwnReceiver) {
  run(2, [](Endpoints& ends, Runtime& runtime) {
    const auto receiver = runtime.spawn("receiver", [&] {
      const auto received = ends[0]->receive(kNever);
      ASSERT_FALSE(received);
      EXPECT_EQ(received.error().kind, TransportError::Kind::kClosed);
    });
    runtime.sleep_until(runtime.clock().now() + milliseconds(2));
    ends[0]->close();
    receiver->join();
    EXPECT_EQ(ends[0]->receive(kNever).error().kind, TransportError::Kind::kClosed);
  });
}

TEST_P(TransportConformance, PeersSeeACloseOnceAndAfterTheFramesSentBefore) {
  run(3, [](Endpoints& ends, Runtime& runtime) {
    ends[2]->send(WorkerId(0), frame_of("last words"));
    ends[2]->close();
    ends[2]->close();
    const auto words = ends[0]->receive(kNever);
    ASSERT_TRUE(words);
    EXPECT_EQ(text_of(*words), "last words");
    for (const std::size_t rank : {std::size_t{0}, std::size_t{1}}) {
      const auto news = ends[rank]->receive(kNever);
      ASSERT_FALSE(news);
      EXPECT_EQ(news.error().kind, TransportError::Kind::kPeerLost);
      EXPECT_EQ(news.error().peer, WorkerId(2));
      const auto after = ends[rank]->receive(runtime.clock().now() + milliseconds(200));
      ASSERT_FALSE(after);
      EXPECT_EQ(after.error().kind, TransportError::Kind::kDeadlineExceeded);
    }
  });
}

TEST_P(TransportConformance, DestroyingAnEndpointClosesIt) {
  run(2, [](Endpoints& ends, Runtime&) {
    ends[1].reset();
    const auto news = ends[0]->receive(kNever);
    ASSERT_FALSE(news);
    EXPECT_EQ(news.error().kind, TransportError::Kind::kPeerLost);
  });
}

TEST_P(TransportConformance, FramesToALostPeerAreDropped) {
  run(3, [](Endpoints& ends, Runtime&) {
    ends[2]->close();
    ends[0]->send(WorkerId(2), frame_of("too late"));
    ends[0]->send(WorkerId(1), frame_of("still here"));
    bool lost = false;
    bool arrived = false;
    while (!lost || !arrived) {
      const auto received = ends[1]->receive(kNever);
      (received ? arrived : lost) = true;
    }
  });
}

TEST_P(TransportConformance, ManySendersToOneKeepTheirOrdersAndLoseNothing) {
  constexpr int kSenders = 7;
  constexpr int kFrames = 60;
  run(kSenders + 1, [](Endpoints& ends, Runtime& runtime) {
    std::vector<std::unique_ptr<Task>> senders;
    senders.reserve(kSenders);
    for (int s = 1; s <= kSenders; ++s) {
      senders.push_back(runtime.spawn("sender", [&, s] {
        for (int i = 0; i < kFrames; ++i) {
          ends[static_cast<std::size_t>(s)]->send(WorkerId(0), numbered(i));
        }
      }));
    }
    std::vector<int> next(kSenders + 1, 0);
    for (int i = 0; i < kSenders * kFrames; ++i) {
      const auto received = ends[0]->receive(kNever);
      ASSERT_TRUE(received);
      const auto from = static_cast<std::size_t>(received->from.value());
      ASSERT_EQ(text_of(*received), std::to_string(next[from])) << "sender " << from;
      ++next[from];
    }
    for (int s = 1; s <= kSenders; ++s) EXPECT_EQ(next[static_cast<std::size_t>(s)], +kFrames);
  });
}

TEST_P(TransportConformance, EveryoneToEveryoneAtOnce) {
  constexpr int kMembers = 5;
  constexpr int kFrames = 40;
  run(kMembers, [](Endpoints& ends, Runtime& runtime) {
    std::vector<std::unique_ptr<Task>> tasks;
    tasks.reserve(kMembers);
    for (int rank = 0; rank < kMembers; ++rank) {
      tasks.push_back(runtime.spawn("member", [&, rank] {
        Transport& self = *ends[static_cast<std::size_t>(rank)];
        for (int i = 0; i < kFrames; ++i) {
          for (int peer = 0; peer < kMembers; ++peer) {
            if (peer != rank) self.send(WorkerId(peer), numbered(i));
          }
        }
        std::vector<int> next(kMembers, 0);
        for (int i = 0; i < kFrames * (kMembers - 1); ++i) {
          const auto received = self.receive(runtime.clock().now() + seconds(60));
          ASSERT_TRUE(received);
          const auto from = static_cast<std::size_t>(received->from.value());
          ASSERT_EQ(text_of(*received), std::to_string(next[from]++));
        }
      }));
    }
    for (auto& task : tasks) task->join();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, TransportConformance, ::testing::ValuesIn(all_transport_worlds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace isthmus::testing_support::this_file
