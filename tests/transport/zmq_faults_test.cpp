// SPDX-License-Identifier: Apache-2.0
// What goes wrong on real sockets: members that differ, die, freeze or read slowly, and strangers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "raw_peer.h"
#include "transport/exchange/run_in_process.h"
#include "transport/links/link_flow.h"
#include "transport/naive_mean.h"
#include "transport/wire/frame.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Members = std::vector<std::unique_ptr<NetworkTransport>>;

FrameBytes frame_of(std::size_t bytes, std::byte value = {}) {
  return std::make_shared<const std::vector<std::byte>>(bytes, value);
}

class ZmqFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  }
  TimePoint in(Duration time) { return runtime_.clock().now() + time; }

  SystemRuntime runtime_;
};

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}
int threads_of_this_process() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (int n = 0; word == "Threads:" && status >> n) return n;
  }
  return -1;
}

TEST_F(ZmqFaults, UnlikeConfigurationsAreNamedOnBothSides) {
  Members ends = bind_members(runtime_, 2, [](MemberOptions& options) {
    options.identity.configuration = std::string(64, options.self == WorkerId(0) ? 'a' : 'b');
  });
  const auto endpoints = endpoints_of(ends);
  for (const auto& end : ends) end->join(endpoints);
  for (const auto& end : ends) {
    const auto joined = end->await_members(in(30s));
    ASSERT_FALSE(joined);
    EXPECT_TRUE(joined.error().refused);
    EXPECT_EQ(joined.error().field, RefusedField::kConfiguration);
    EXPECT_THAT(joined.error().what, HasSubstr(std::string(64, 'a')));
    EXPECT_THAT(joined.error().what, HasSubstr(std::string(64, 'b')));
  }
}

TEST_F(ZmqFaults, EndpointsInAnotherOrderAreNamed) {
  Members ends = bind_members(runtime_, 3);
  auto endpoints = endpoints_of(ends);
  ends[1]->join(endpoints);
  ends[2]->join(endpoints);
  std::swap(endpoints[1], endpoints[2]);
  ends[0]->join(endpoints);
  const auto joined = ends[0]->await_members(in(30s));
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().field, RefusedField::kPlace);
  EXPECT_THAT(joined.error().what, HasSubstr("give all members the same list of endpoints"));
}

TEST_F(ZmqFaults, WhoIsMissingIsNamedWithItsAddress) {
  Members ends = bind_members(runtime_, 3);
  const auto endpoints = endpoints_of(ends);
  ends[2].reset();  // nobody listens there any more
  ends[0]->join(endpoints);
  ends[1]->join(endpoints);
  auto joined = ends[0]->await_members(in(500ms));
  // On a busy machine member 1 answers later than that.
  for (int waits = 1; waits < 60 && !joined; ++waits) {
    if (joined.error().what.find("member 1") == std::string::npos) break;
    joined = ends[0]->await_members(in(500ms));
  }
  ASSERT_FALSE(joined);
  EXPECT_FALSE(joined.error().refused);
  EXPECT_THAT(joined.error().what, HasSubstr("member 2 at " + endpoints[2]));
  EXPECT_THAT(joined.error().what, HasSubstr("no connection, trying again"));
  EXPECT_THAT(joined.error().what, ::testing::Not(HasSubstr("member 1")));
}

TEST_F(ZmqFaults, AMemberMayComeLate) {
  EventLog log(runtime_);
  Members ends = bind_members(runtime_, 2, [&](MemberOptions& options) {
    if (options.self == WorkerId(0)) {
      options.name = "east";
      options.on_event = [&](const LinkEvent& event) { log.record(event); };
    } else {
      options.name = "west";
    }
  });
  const auto endpoints = endpoints_of(ends);
  ends[1].reset();
  ends[0]->join(endpoints);
  ASSERT_TRUE(log.wait_for(LinkEvent::Kind::kRetried, "no connection, trying again"));
  MemberOptions late;
  late.self = WorkerId(1);
  late.members = 2;
  late.bind = endpoints[1];
  late.name = "west";
  late.streams = 2;
  ends[1] = make_zmq_transport(runtime_, late);
  ends[1]->join(endpoints);
  ASSERT_TRUE(ends[0]->await_members(in(30s)));
  ASSERT_TRUE(ends[1]->await_members(in(30s)));
  ends[1].reset();
  EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kLeft, "member 1 (west): has left"));
}

TEST_F(ZmqFaults, OptionsThatCannotBeAreRefused) {
  const auto what = [&](const Tweak& tweak) -> std::string {
    MemberOptions options{.self = WorkerId(0), .members = 2};
    tweak(options);
    try {
      (void)make_zmq_transport(runtime_, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(what([](MemberOptions& o) { o.bind = "tcp://0.0.0.0:*"; }),
              HasSubstr("net.plaintext = true"));
  EXPECT_EQ(what([](MemberOptions& o) {
              o.bind = "tcp://0.0.0.0:*";
              o.plaintext = true;
            }),
            "accepted");
  EXPECT_THAT(what([](MemberOptions& o) { o.bind = "127.0.0.1:4000"; }),
              HasSubstr("must be tcp://HOST:PORT"));
  EXPECT_THAT(what([](MemberOptions& o) { o.bind = "tcp://127.0.0.1:70000"; }),
              HasSubstr("the port must be 1 to 65535"));
  EXPECT_THAT(what([](MemberOptions& o) { o.streams = 0; }), HasSubstr("net.streams = 0"));
  EXPECT_THAT(what([](MemberOptions& o) { o.window_bytes = 1000; }), HasSubstr("1000 bytes"));
  EXPECT_THAT(what([](MemberOptions& o) { o.self = WorkerId(2); }), HasSubstr("member 2 of 2"));
  const auto taken = make_zmq_transport(runtime_, {.self = WorkerId(0), .members = 2});
  EXPECT_THAT(what([&](MemberOptions& o) { o.bind = taken->endpoint(); }),
              HasSubstr("cannot listen at " + taken->endpoint()));
  Members ends = bind_members(runtime_, 2);
  EXPECT_THROW(ends[0]->join(std::vector<std::string>{"tcp://127.0.0.1:1", "tcp://10.0.0.2:1"}),
               ConfigError);
}

// While members exchange, their ports are scanned, shouted at and spoken to in ZMTP.
TEST_F(ZmqFaults, StrangersDoNotDisturbAnExchange) {
  EventLog log(runtime_);
  Members joined = joined_members(runtime_, 2, [&](MemberOptions& options) {
    options.on_event = [&](const LinkEvent& event) { log.record(event); };
  });
  const auto endpoints = endpoints_of(joined);
  std::vector<std::unique_ptr<Transport>> ends;
  for (auto& end : joined) ends.push_back(std::move(end));
  std::atomic<bool> over = false;
  const auto stranger = runtime_.spawn("stranger", [&] {
    for (int i = 0; !over || i < 20; ++i) {
      const std::string& endpoint = endpoints[static_cast<std::size_t>(i % 2)];
      { const RawPeer scanner(endpoint); }
      RawPeer browser(endpoint);
      browser.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
      RawPeer noise(endpoint);
      noise.send(std::string(100000, static_cast<char>(i * 37)));
      RawPeer(endpoint).send_greeting("PLAID");
      RawPeer speaker(endpoint);
      speaker.shake_hands();
      speaker.send_part("no header", false);
      speaker.send_part(std::string(kLinkHeaderBytes, 'x'), true);
      speaker.send_part(std::string(1 << 20, 'y'), false);
      speaker.send_part("", true);
      for (int part = 0; part < 9; ++part) speaker.send_part("many", true);
      speaker.send_part("parts", false);
    }
  });
  const std::shared_ptr<const Codec> codec = make_codec("int8");
  std::vector<std::vector<float>> expected;
  for (int step = 0; step < 20; ++step) {
    expected.push_back(testing_support::naive_mean(*codec, 2, 200000, ReductionKind::kReduce,
                                                   {FragmentId(0), StepIndex(step)}));
  }
  run_over(runtime_, ends, PeerExchangeOptions{}, [&](WorkerContext& context) {
    for (int step = 0; step < 20; ++step) {
      const auto result =
          context.exchange.wait(context.exchange.begin(testing_support::contribution_of(
                                    codec, context.rank, 200000, {FragmentId(0), StepIndex(step)},
                                    ReductionKind::kReduce)),
                                120s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
      EXPECT_EQ(result->values, expected[static_cast<std::size_t>(step)]);
    }
    if (context.rank == WorkerId(0)) {  // while both still listen
      EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kStranger, "a stranger sent a header of 0 bytes"));
      EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kStranger, "does not speak the protocol"));
      over = true;
      stranger->join();
    }
  });
}

TEST_F(ZmqFaults, ARowHoldsAFewDataAndNothingElse) {
  EventLog log(runtime_);
  Members ends = joined_members(runtime_, 2, [&](MemberOptions& options) {
    if (options.self == WorkerId(0)) {
      options.on_event = [&](const LinkEvent& event) { log.record(event); };
    }
  });
  RawPeer other(ends[0]->endpoint());
  other.shake_hands();
  const auto say = [&other](LinkKind kind, std::size_t count) {
    const std::vector<std::byte> body(100);
    const LinkHeaderBytes header = write_link_header({.kind = kind}, body);
    std::string row;
    for (std::size_t i = 0; i < count; ++i) {
      row.append(reinterpret_cast<const char*>(header.data()), header.size());
      row.append(reinterpret_cast<const char*>(body.data()), body.size());
    }
    other.send_part("", true);
    other.send_part(row, false);
  };
  const auto answers = [&other](std::size_t count) {  // to DATA without a greeting: WHO
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(other.read_part().substr(6, 2), std::string("\x09\0", 2)) << "answer " << i;
      EXPECT_EQ(other.read_part(), "");
    }
  };
  say(LinkKind::kHello, 1);
  EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kStranger, "a header of 0 bytes, not 40 (1 such"));
  say(LinkKind::kData, 2);
  answers(2);
  say(LinkKind::kData, 1000);  // as many as a member says at most, and no more
  answers(32);
  EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kStranger, "a header of 0 bytes, not 40 (2 such"));
  ends[1]->send(WorkerId(0), frame_of(10));
  EXPECT_TRUE(ends[0]->receive(in(30s)));
}

TEST_F(ZmqFaults, AnOversizedMessageEndsItsConnection) {
  Members ends = joined_members(runtime_, 2);
  RawPeer hostile(ends[0]->endpoint());
  hostile.shake_hands();
  hostile.send_part(std::string(kLinkHeaderBytes, 'x'), true);
  hostile.send_part(std::string(3 << 20, 'y'), false);
  EXPECT_EQ(hostile.read(1), "");  // hung up
  ends[1]->send(WorkerId(0), frame_of(10));
  EXPECT_TRUE(ends[0]->receive(in(30s)));
}

TEST_F(ZmqFaults, AStrangerWithoutTheRightConfigurationIsToldWhy) {
  Members ends = joined_members(runtime_, 2);
  RawPeer other(ends[0]->endpoint());
  other.shake_hands();
  Hello hello{.protocol = kFrameVersion, .members = 2, .from = WorkerId(1), .to = WorkerId(0)};
  hello.streams = 2;
  hello.configuration = std::string(64, 'e');
  const std::vector<std::byte> body = write_hello(hello);
  const LinkHeaderBytes header = write_link_header({.kind = LinkKind::kHello, .number = 1}, body);
  other.send_part({reinterpret_cast<const char*>(header.data()), header.size()}, true);
  other.send_part({reinterpret_cast<const char*>(body.data()), body.size()}, false);
  EXPECT_EQ(other.read_part().size(), kLinkHeaderBytes);
  const std::string answer = other.read_part();
  EXPECT_EQ(answer.substr(0, 2), std::string("\3\0", 2));
  EXPECT_THAT(answer, HasSubstr("configuration digest: member 0 has 0000"));
}

TEST_F(ZmqFaults, ASlowReaderBoundsTheMemoryOfBoth) {
  constexpr int kFrames = 400;
  Members ends = joined_members(
      runtime_, 2, [](MemberOptions& options) { options.window_bytes = kSmallestWindow; });
  const FrameBytes frame = frame_of(kMaxFramePayload, std::byte{7});
  const std::size_t before = resident_bytes();
  for (int i = 0; i < kFrames; ++i) ends[0]->send(WorkerId(1), frame);
  ends[1]->send(WorkerId(0), frame_of(1));  // the other direction is free
  ASSERT_TRUE(ends[0]->receive(in(30s)));
  runtime_.sleep_until(in(300ms));  // more than loopback needs to bring all there is
  // A window, what is in ZeroMQ and in the allocator; the frames together would be 400 MiB.
  EXPECT_LE(resident_bytes(), before + (std::size_t{100} << 20));
  for (int i = 0; i < kFrames; ++i) {
    const auto received = ends[1]->receive(in(30s));
    ASSERT_TRUE(received) << received.error().what;
    ASSERT_EQ(received->bytes->size(), kMaxFramePayload);
  }
}

// With the window that members announce by themselves, which is larger, and a peer whose round trip
// counts as short: of 64 MiB in frames of 1 MiB no more than eight are under way while the owner
// takes none, so that is what both ends and the system hold in all.
TEST_F(ZmqFaults, ANearLinkHasAtMostEightMebibytesUnderWay) {
  constexpr int kFrames = 64;
  std::atomic<std::size_t> carried = 0;
  Members ends = joined_members(runtime_, 2, [&](MemberOptions& options) {
    options.far = 1min;
    if (options.self != WorkerId(0)) return;
    options.on_carried = [&](bool out, WorkerId, int, std::span<const std::byte> frame) {
      if (out) carried += link_charge(frame.size());
    };
  });
  const FrameBytes frame = frame_of(kMaxFramePayload, std::byte{7});
  for (int i = 0; i < kFrames; ++i) ends[0]->send(WorkerId(1), frame);
  ends[1]->send(WorkerId(0), frame_of(1));  // the other direction is free
  ASSERT_TRUE(ends[0]->receive(in(30s)));
  const TimePoint patience = in(30s);
  while (carried < kNearWindow - kMaxFramePayload - 512 && runtime_.clock().now() < patience) {
    runtime_.sleep_until(in(10ms));
  }
  runtime_.sleep_until(in(300ms));  // more than loopback needs to bring all there is
  EXPECT_LE(carried, kNearWindow);
  EXPECT_GT(carried, kNearWindow - kMaxFramePayload - 512);  // and the link is not idle
  for (int i = 0; i < kFrames; ++i) {
    const auto received = ends[1]->receive(in(30s));
    ASSERT_TRUE(received) << received.error().what;
    ASSERT_EQ(received->bytes->size(), kMaxFramePayload);
  }
}

// What a frame was sent from is kept until the frame is acknowledged. A word to any member, as DONE
// to the coordinator at the end of a round, has all that was taken acknowledged at once and not by
// the next heartbeat.
TEST_F(ZmqFaults, AWordFreesWhatValuesWereSentFrom) {
  Members ends = joined_members(runtime_, 3, [](MemberOptions& options) {
    options.heartbeat = 5min;
    options.dead_after = 30min;
  });
  auto vector = std::make_shared<const std::vector<std::byte>>(std::size_t{300} << 10);
  const std::weak_ptr<const std::vector<std::byte>> kept = vector;
  const FrameHeader header{.kind = FrameKind::kContribution, .parts = 1, .weight = 1};
  ends[0]->send(WorkerId(1), make_frame_around(header, *vector, vector));
  vector.reset();
  ASSERT_TRUE(ends[1]->receive(in(30s)));
  ends[1]->send(WorkerId(2), make_frame({.kind = FrameKind::kDone}));
  const TimePoint patience = in(30s);
  while (!kept.expired() && runtime_.clock().now() < patience) runtime_.sleep_until(in(1ms));
  EXPECT_TRUE(kept.expired());
}

TEST_F(ZmqFaults, ClosingWaitsNoLongerThanItsLingerForAReaderThatDoesNotRead) {
  Members ends = joined_members(runtime_, 2, [](MemberOptions& options) {
    options.window_bytes = kSmallestWindow;
    options.linger = 500ms;
  });
  for (int i = 0; i < 50; ++i) ends[0]->send(WorkerId(1), frame_of(kMaxFramePayload));
  const TimePoint begin = runtime_.clock().now();
  ends[0].reset();
  EXPECT_LT(runtime_.clock().now() - begin, 10s);  // and not for ever
}

TEST_F(ZmqFaults, NoThreadIsLeft) {
  const int before = threads_of_this_process();
  {
    Members ends = joined_members(runtime_, 3);
    EXPECT_GT(threads_of_this_process(), before);
  }
  EXPECT_EQ(threads_of_this_process(), before);
}

/// Member 1 in a process of its own, which the test can kill or stop.
class OtherProcess {
 public:
  /// Forks before this process has threads. The child joins, sends one frame and then waits.
  OtherProcess() {
    int up[2], down[2];
    EXPECT_EQ(::pipe(up), 0);
    EXPECT_EQ(::pipe(down), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      SystemRuntime runtime;
      const auto end =
          make_zmq_transport(runtime, {.self = WorkerId(1), .members = 2, .streams = 2});
      write_line(up[1], end->endpoint());
      end->join(std::vector<std::string>{read_line(down[0]), end->endpoint()});
      (void)end->await_members(kNever);
      end->send(WorkerId(0), frame_of(5));
      while (true) ::pause();
    }
    from_child_ = up[0];
    to_child_ = down[1];
    endpoint_ = read_line(from_child_);
  }
  ~OtherProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void send(int signal) const { ::kill(pid_, signal); }
  std::unique_ptr<NetworkTransport> join(Runtime& runtime, const MemberOptions& options) {
    auto end = make_zmq_transport(runtime, options);
    write_line(to_child_, end->endpoint());
    end->join(std::vector<std::string>{end->endpoint(), endpoint_});
    const auto joined = end->await_members(runtime.clock().now() + 60s);
    EXPECT_TRUE(joined.has_value()) << joined.error().what;
    EXPECT_TRUE(end->receive(runtime.clock().now() + 60s));
    return end;
  }

 private:
  static void write_line(int fd, const std::string& text) {
    EXPECT_EQ(::write(fd, (text + "\n").data(), text.size() + 1),
              static_cast<ssize_t>(text.size() + 1));
  }
  static std::string read_line(int fd) {
    std::string text;
    for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  pid_t pid_ = -1;
  int from_child_ = -1, to_child_ = -1;
  std::string endpoint_;
};

TEST_F(ZmqFaults, AKilledMemberIsLostSoonAfterItsConnectionsBreak) {
  OtherProcess other;
  const auto end = other.join(
      runtime_,
      {.self = WorkerId(0), .members = 2, .streams = 2, .heartbeat = 100ms, .gone_after = 1s});
  const TimePoint begin = runtime_.clock().now();
  other.send(SIGKILL);
  const auto news = end->receive(in(60s));
  ASSERT_FALSE(news);
  EXPECT_EQ(news.error().kind, TransportError::Kind::kPeerLost);
  EXPECT_EQ(news.error().peer, WorkerId(1));
  EXPECT_THAT(news.error().what, HasSubstr("connections broke and have not come back"));
  EXPECT_GE(runtime_.clock().now() - begin, 900ms);
}

TEST_F(ZmqFaults, AFrozenMemberIsLostWhenItHasBeenSilentForTooLong) {
  OtherProcess other;
  const auto end = other.join(runtime_, {.self = WorkerId(0),
                                         .members = 2,
                                         .streams = 2,
                                         .heartbeat = 200ms,
                                         .dead_after = 2s,
                                         .linger = 1s});
  other.send(SIGSTOP);
  const auto news = end->receive(in(60s));
  ASSERT_FALSE(news);
  EXPECT_EQ(news.error().kind, TransportError::Kind::kPeerLost);
  EXPECT_THAT(news.error().what, HasSubstr("it has been silent for 2."));
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
