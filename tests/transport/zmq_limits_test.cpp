// SPDX-License-Identifier: Apache-2.0
// What links cost and what they wait for: open files, sockets, heartbeats, addresses that do not
// answer, strangers that come before the members, and what is kept when the links fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <stdexcept>
#include <tuple>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "raw_peer.h"
#include "transport/links/relay/link_allowance.h"
#include "transport/wire/frame.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Members = std::vector<std::unique_ptr<NetworkTransport>>;

class ZmqLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  }
  TimePoint in(Duration time) { return runtime_.clock().now() + time; }

  SystemRuntime runtime_;
};

/// The soft limit of open files, put back at the end.
class FileLimit {
 public:
  explicit FileLimit(rlim_t files) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit now = before_;
    now.rlim_cur = files;
    reached_ = now.rlim_cur <= now.rlim_max && ::setrlimit(RLIMIT_NOFILE, &now) == 0;
  }
  ~FileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  [[nodiscard]] bool reached() const { return reached_; }

 private:
  rlimit before_{};
  bool reached_ = false;
};

TEST_F(ZmqLimits, MoreConnectionsThanFilesMayBeOpenAreRefusedByName) {
  const auto what = [&](int members, int streams, int most = 0) -> std::string {
    try {
      (void)make_zmq_transport(
          runtime_,
          {.self = WorkerId(0), .members = members, .streams = streams, .most_streams = most});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  const FileLimit limit(600);
  ASSERT_TRUE(limit.reached());
  EXPECT_EQ(what(2, 64), "accepted");
  EXPECT_THAT(what(64, 4), AllOf(HasSubstr("64 members with net.streams = 4 need"),
                                 HasSubstr("ulimit -n"), HasSubstr("600")));
  EXPECT_EQ(what(14, 4, kMostStreams), "accepted") << "with fewer than the most";
  EXPECT_THAT(what(15, 4, kMostStreams), HasSubstr("15 members with net.streams = \"auto\" need"));
  EXPECT_THAT(what(4096, 64), HasSubstr("4096 members with net.streams = 64 need"));
}

TEST_F(ZmqLimits, DetoursAreLeftOutWhereOnlyTheyNeedTooManyFiles) {
  const auto detours_of = [](int members, int streams, int most) {
    MemberOptions options{.self = WorkerId(0),
                          .members = members,
                          .streams = streams,
                          .most_streams = most,
                          .detours = true,
                          .readmits = true};
    spare_detours(options);
    return options;
  };
  const auto accepted = [this](const MemberOptions& options) -> std::string {
    try {
      (void)make_zmq_transport(runtime_, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  const FileLimit limit(1024);
  ASSERT_TRUE(limit.reached());
  for (const auto& [members, streams, most, goes_round] :
       {std::tuple(5, 4, kMostStreams, true), std::tuple(12, 4, kMostStreams, false),
        std::tuple(5, 16, 0, false)}) {
    MemberOptions options = detours_of(members, streams, most);
    EXPECT_EQ(options.detours, goes_round) << members;
    EXPECT_EQ(accepted(options), "accepted") << members;
    options.detours = true;
    EXPECT_THAT(accepted(options), goes_round ? HasSubstr("accepted") : HasSubstr("net.detour"));
  }
  const MemberOptions many = detours_of(64, 4, 0);
  EXPECT_TRUE(many.detours) << "they are not what is too much";
  EXPECT_THAT(accepted(many), HasSubstr("set fewer streams, or net.detour = false"));
}

// A hub of 15 sites that nobody can dial: 225 ways pass it, each of 4 connections with 2 files,
// beside 15 sites that listen and 64 strangers.
TEST_F(ZmqLimits, ARelayNeedsFilesForAllThatPassesIt) {
  const auto what = [this](int hidden, bool relays) -> std::string {
    MemberOptions options{.self = WorkerId(15), .members = 16, .relays = relays, .readmits = true};
    for (int m = 0; m < hidden; ++m) options.relayed.emplace_back(m);
    try {
      (void)make_zmq_transport(runtime_, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  constexpr int kOfItsOwn = 4 * 15 * 2 * 4 + 15 * 2 * 4 + 2 * 15 * 4 * 2 + 64;
  constexpr int kPassing = 225 * 4 * 2 + 15 + 64;
  {
    const FileLimit limit(1024);
    ASSERT_TRUE(limit.reached());
    EXPECT_EQ(what(15, false), "accepted");
    EXPECT_EQ(what(0, true), "accepted") << "nothing passes";
    EXPECT_THAT(what(15, true),
                HasSubstr("need " + std::to_string(kOfItsOwn + kPassing) + " open files"));
    EXPECT_THAT(what(3, true), HasSubstr("ulimit -n")) << "45 ways";
  }
  const FileLimit enough(kOfItsOwn + kPassing);
  if (!enough.reached()) GTEST_SKIP() << "this system allows fewer open files";
  EXPECT_EQ(what(15, true), "accepted");
}

TEST_F(ZmqLimits, HundredsOfMembersAreDialled) {
  constexpr int kMembers = 400;
  const FileLimit limit(4096);
  if (!limit.reached()) GTEST_SKIP() << "this system allows fewer than 4096 open files";
  const auto end =
      make_zmq_transport(runtime_, {.self = WorkerId(0), .members = kMembers, .streams = 1});
  end->join(std::vector<std::string>(kMembers, "tcp://127.0.0.1:1"));  // nobody listens there
  EXPECT_FALSE(end->await_members(in(0s)));
}

TEST_F(ZmqLimits, JoiningDoesNotWaitForAHeartbeat) {
  for (int repetition = 0; repetition < 60; ++repetition) {
    Members ends = bind_members(runtime_, 3, [](MemberOptions& options) {
      options.heartbeat = 30s;  // what is tried again with it comes too late
    });
    const auto endpoints = endpoints_of(ends);
    for (const auto& end : ends) end->join(endpoints);
    for (const auto& end : ends) {
      const auto joined = end->await_members(in(15s));
      ASSERT_TRUE(joined) << joined.error().what;
    }
  }
}

TEST_F(ZmqLimits, ClosingDoesNotWaitForAHeartbeat) {
  Members ends = joined_members(runtime_, 2, [](MemberOptions& options) {
    options.window_bytes = kSmallestWindow;
    options.heartbeat = 30s;
    options.linger = 100ms;
  });
  const auto frame = std::make_shared<const std::vector<std::byte>>(kMaxFramePayload);
  for (int i = 0; i < 50; ++i) ends[0]->send(WorkerId(1), frame);  // which nobody reads
  const TimePoint begin = runtime_.clock().now();
  ends[0].reset();
  EXPECT_LT(runtime_.clock().now() - begin, 15s);
}

TEST_F(ZmqLimits, AnAddressThatSwallowsConnectionsIsTriedAgainSoon) {
  const FullListener swallows;
  EventLog log(runtime_);
  const auto end = make_zmq_transport(
      runtime_, {.self = WorkerId(0), .members = 2, .on_event = [&](const LinkEvent& event) {
                   log.record(event);
                 }});
  end->join(std::vector<std::string>{end->endpoint(), swallows.endpoint()});
  EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kRetried, "no connection, trying again"));
}

TEST_F(ZmqLimits, StrangersBeforeTheMembersJoinStopNothing) {
  Members ends = bind_members(runtime_, 2);
  for (int i = 0; i < 1500; ++i) {
    RawPeer stranger(ends[0]->endpoint());
    stranger.read(1);  // it has been let in, and hangs up
  }
  const auto endpoints = endpoints_of(ends);
  for (const auto& end : ends) end->join(endpoints);
  for (const auto& end : ends) ASSERT_TRUE(end->await_members(in(30s)));
  ends[0]->send(WorkerId(1), std::make_shared<const std::vector<std::byte>>(10));
  EXPECT_TRUE(ends[1]->receive(in(30s)));
}

// A flood that has got no further than TCP, or than half of a handshake: frames go as ever, nobody
// counts as gone, and who comes afterwards is let in.
TEST_F(ZmqLimits, HundredsOfHalfOpenConnectionsHoldUpNoFrames) {
  const FileLimit limit(4096);
  if (!limit.reached()) GTEST_SKIP() << "this system allows fewer than 4096 open files";
  Members ends = joined_members(runtime_, 2, [](MemberOptions& options) {
    options.dead_after = 10s;
    options.gone_after = 10s;
  });
  std::vector<std::unique_ptr<RawPeer>> flood;
  for (int i = 0; i < 500; ++i) {
    const auto& target = ends[static_cast<std::size_t>(i % 2)];
    flood.push_back(std::make_unique<RawPeer>(target->endpoint()));
    if (i % 3 == 0) (void)flood.back()->send(std::string("\xff\0\0\0\0", 5));
    if (i % 3 == 1) (void)flood.back()->send_greeting("NULL");
  }
  const auto frame = std::make_shared<const std::vector<std::byte>>(100'000);
  for (int round = 0; round < 50; ++round) {
    for (int from = 0; from < 2; ++from) {
      ends[static_cast<std::size_t>(from)]->send(WorkerId(1 - from), frame);
      const auto got = ends[static_cast<std::size_t>(1 - from)]->receive(in(5s));
      ASSERT_TRUE(got) << "round " << round << ": " << got.error().what;
    }
  }
}

TEST_F(ZmqLimits, LinksThatFailedKeepNoFrames) {
  Members ends = bind_members(runtime_, 2, [](MemberOptions& options) {
    if (options.self == WorkerId(0)) {
      options.on_event = [](const LinkEvent&) { throw std::runtime_error("no disk"); };
    }
  });
  const auto endpoints = endpoints_of(ends);
  for (const auto& end : ends) end->join(endpoints);
  const auto joined = ends[0]->await_members(in(30s));
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().what, HasSubstr("no disk"));
  const auto frame = std::make_shared<const std::vector<std::byte>>(10);
  for (int i = 0; i < 100; ++i) ends[0]->send(WorkerId(1), frame);
  EXPECT_EQ(frame.use_count(), 1);
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
