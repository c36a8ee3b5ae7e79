// SPDX-License-Identifier: Apache-2.0
// What was once on the wire is said again, by who has heard it: to a member over a connection of
// its own, and between two messages of a connection that stands. Nothing changes, and it is told
// once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "raw_peer.h"
#include "recording_tap.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;
using Members = std::vector<std::unique_ptr<NetworkTransport>>;

FrameBytes frame_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}
std::string text_of(const FrameBytes& frame) {
  return {reinterpret_cast<const char*>(frame->data()), frame->size()};
}
std::string word(int number) { return "word " + std::to_string(number) + "."; }

/// Members 0 and 1, of which 1 reaches 0 by way of a tap, over one connection a direction.
class ZmqReplay : public ::testing::Test {
 protected:
  void SetUp() override {
    if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  }
  TimePoint in(Duration time) { return runtime_.clock().now() + time; }

  void join(const Tweak& tweak = {}) {
    ends_ = bind_members(runtime_, 2, [&](MemberOptions& options) {
      options.streams = 1;
      if (options.self == WorkerId(0)) {
        options.on_event = [this](const LinkEvent& event) { log_.record(event); };
      }
      if (tweak) tweak(options);
    });
    tap_ = std::make_unique<RecordingTap>(runtime_, ends_[0]->endpoint());
    ends_[0]->join(endpoints_of(ends_));
    ends_[1]->join(std::vector<std::string>{tap_->endpoint(), ends_[1]->endpoint()});
    for (const auto& end : ends_) {
      const auto joined = end->await_members(in(1min));
      ASSERT_TRUE(joined.has_value()) << joined.error().what;
    }
  }
  /// Member 1 says the words from `begin` to `end`, which member 0 hears once each, in order.
  void talk(int begin, int end) {
    for (int i = begin; i < end; ++i) ends_[1]->send(WorkerId(0), frame_of(word(i)));
    for (int i = begin; i < end; ++i) {
      const auto heard = ends_[0]->receive(in(1min));
      ASSERT_TRUE(heard) << heard.error().what;
      ASSERT_EQ(text_of(heard->bytes), word(i));
    }
    ends_[0]->send(WorkerId(1), frame_of("heard"));
    const auto answer = ends_[1]->receive(in(1min));
    ASSERT_TRUE(answer) << answer.error().what;
    ASSERT_EQ(text_of(answer->bytes), "heard");
  }

  /// What the tap has heard, to member 0; it is answered as it goes, as far as that gets.
  void replay(RawPeer& replayer) {
    constexpr std::size_t kGreeting = 64;
    const std::string recorded = tap_->recorded();
    ASSERT_TRUE(replayer.send(recorded.substr(0, kGreeting)));
    ASSERT_EQ(replayer.read(kGreeting).size(), kGreeting);
    ASSERT_TRUE(replayer.send(recorded.substr(kGreeting)));
  }

  SystemRuntime runtime_;
  EventLog log_{runtime_};
  Members ends_;
  std::unique_ptr<RecordingTap> tap_;
};

TEST_F(ZmqReplay, ARecordedConnectionSaidAgainChangesNothing) {
  join();
  talk(0, 50);
  const int before = log_.count("");
  // A member may greet more than once before it is answered; repetitions are told at 1, 2, 4, ...
  const std::size_t greetings = tap_->messages_with(std::string("ISLK\2\0\1\0", 8)).size();
  ASSERT_GE(greetings, 1u);
  RawPeer replayer(ends_[0]->endpoint());
  replay(replayer);
  ASSERT_TRUE(log_.wait_for(LinkEvent::Kind::kStranger,
                            fmt::format("member 1, connection 0: a greeting of before has come "
                                        "again (a replay?), and changes nothing, {} time",
                                        std::bit_floor(greetings))));
  talk(50, 100);
  EXPECT_EQ(log_.count("has come again"), std::bit_width(greetings));
  EXPECT_EQ(log_.count(""), before + std::bit_width(greetings)) << "and nothing else was told";
}

TEST_F(ZmqReplay, AFrameSaidAgainOnItsConnectionIsHeardOnce) {
  join([](MemberOptions& options) { options.heartbeat = 100ms; });
  talk(0, 50);
  const auto frames = tap_->messages_with(word(7));
  ASSERT_EQ(frames.size(), 1u);
  tap_->say_again(frames.front());
  talk(50, 51);
  ASSERT_TRUE(log_.wait_for(LinkEvent::Kind::kStranger,
                            "member 1, connection 0: something is "
                            "missing or has come twice on it"));
  talk(51, 100);
  EXPECT_EQ(log_.count("has come twice"), 1);
}

// A row is as good as its DATA said one by one: the DATA before the broken one count, those after
// it are said again.
TEST_F(ZmqReplay, ABrokenDataInARowComesOnceLikeItsNeighbours) {
  join([](MemberOptions& options) {
    options.heartbeat = 100ms;
    options.far = 1h;  // rows of the largest size, however slow this machine is
  });
  const auto large = [](int number) {
    std::string text = word(number);
    text.resize(20'000, static_cast<char>('a' + number % 26));
    return text;
  };
  constexpr int kTogether = 60;
  int said = 0;
  for (const TimePoint end = in(30s); tap_->flip_in_a_row() == 0; said += kTogether) {
    ASSERT_LT(runtime_.clock().now(), end) << "no frames have gone together";
    for (int i = said; i < said + kTogether; ++i) ends_[1]->send(WorkerId(0), frame_of(large(i)));
    for (int i = said; i < said + kTogether; ++i) {
      const auto heard = ends_[0]->receive(in(1min));
      ASSERT_TRUE(heard) << heard.error().what;
      ASSERT_EQ(text_of(heard->bytes), large(i));
    }
  }
  EXPECT_TRUE(log_.wait_for(LinkEvent::Kind::kStranger, "checksum"));
  talk(said, said + 10);  // nothing has come twice
}

TEST_F(ZmqReplay, WithKeysARecordedConnectionDoesNotGetPastTheHandshake) {
  const LinkKeys keys[] = {make_link_keys(), make_link_keys()};
  join([&](MemberOptions& options) {
    options.keys = keys[options.self.value()];
    options.member_keys = {keys[0].public_key, keys[1].public_key};
  });
  talk(0, 50);
  EXPECT_TRUE(tap_->messages_with("word").empty()) << "nobody on the way can read it";
  RawPeer replayer(ends_[0]->endpoint());
  replay(replayer);
  ASSERT_TRUE(
      log_.wait_for(LinkEvent::Kind::kStranger, "or with what was recorded of another connection"));
  talk(50, 100);
  EXPECT_EQ(log_.count("or with what was recorded of another connection"), 1);
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
