// SPDX-License-Identifier: Apache-2.0
// Members that die, leave or are absent, and come back or come late, on real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/system_runtime.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = TransportError::Kind;
using Members = std::vector<std::unique_ptr<NetworkTransport>>;

constexpr int kMembers = 3;

FrameBytes frame_of(std::size_t bytes) {
  return std::make_shared<const std::vector<std::byte>>(bytes);
}
MemberOptions options_of(int rank, const std::string& bind = "tcp://127.0.0.1:*") {
  return {.self = WorkerId(rank),
          .members = kMembers,
          .bind = bind,
          .streams = 2,
          .heartbeat = 100ms,
          .dead_after = 60s,
          .gone_after = 500ms,
          .readmits = true};
}

/// Member 1 in a process of its own, which begins when told and sends back every frame.
class Echo {
 public:
  /// Forks: before this process has threads.
  Echo() {
    int up[2], down[2];
    EXPECT_EQ(::pipe(up), 0);
    EXPECT_EQ(::pipe(down), 0);
    pid_ = ::fork();
    if (pid_ == 0) serve(down[0], up[1]);
    from_child_ = up[0];
    to_child_ = down[1];
  }
  ~Echo() { kill(); }
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;

  /// RETURNS: its endpoint.
  std::string bind(const std::string& endpoint) {
    write_line(to_child_, endpoint);
    return read_line(from_child_);
  }
  void join(const std::vector<std::string>& endpoints) {
    for (const std::string& endpoint : endpoints) write_line(to_child_, endpoint);
  }
  void kill() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  [[noreturn]] static void serve(int in, int out) {
    SystemRuntime runtime;
    const std::string place = read_line(in);
    if (place.empty()) ::_exit(0);  // never needed
    const auto end = make_zmq_transport(runtime, options_of(1, place));
    write_line(out, end->endpoint());
    std::vector<std::string> endpoints(kMembers);
    for (std::string& endpoint : endpoints) endpoint = read_line(in);
    end->join(endpoints);
    while (true) {
      const auto received = end->receive(kNever);
      if (received) end->send(received->from, received->bytes);
    }
  }
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
};

class ZmqReturning : public ::testing::Test {
 protected:
  void SetUp() override {
    if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  }
  TimePoint in(Duration time) { return runtime_.clock().now() + time; }
  void expect_news(NetworkTransport& end, Kind kind, WorkerId peer) {
    const auto news = end.receive(in(60s));
    ASSERT_FALSE(news) << "a frame of member " << news->from.value();
    EXPECT_EQ(news.error().kind, kind) << news.error().what;
    EXPECT_EQ(news.error().peer, peer) << news.error().what;
  }
  void expect_frame(NetworkTransport& end, WorkerId from, std::size_t bytes) {
    const auto received = end.receive(in(60s));
    ASSERT_TRUE(received) << received.error().what;
    EXPECT_EQ(received->from, from);
    EXPECT_EQ(received->bytes->size(), bytes);
  }
  void expect_all_here(NetworkTransport& end) {
    const auto joined = end.await_members(in(60s));
    ASSERT_TRUE(joined) << joined.error().what;
  }
  // `at_once`: while its predecessor still counts as alive, since its silence alone says otherwise.
  void die_and_return(bool at_once) {
    Echo first, second;
    Members ends;
    for (const int rank : {0, 2}) {
      MemberOptions options = options_of(rank);
      if (at_once) options.gone_after = 60s;
      ends.push_back(make_zmq_transport(runtime_, options));
    }
    const std::string place = first.bind("tcp://127.0.0.1:*");
    const std::vector<std::string> endpoints = {ends[0]->endpoint(), place, ends[1]->endpoint()};
    first.join(endpoints);
    for (const auto& end : ends) end->join(endpoints);
    for (const auto& end : ends) {
      ASSERT_TRUE(end->await_members(in(60s)));
      end->send(WorkerId(1), frame_of(100));
      expect_frame(*end, WorkerId(1), 100);
    }
    first.kill();
    for (const auto& end : ends) end->send(WorkerId(1), frame_of(200));  // nobody ever gets these
    if (!at_once) {
      for (const auto& end : ends) expect_news(*end, Kind::kPeerLost, WorkerId(1));
    }
    EXPECT_EQ(second.bind(place), place);
    second.join(endpoints);
    for (const auto& end : ends) {
      if (at_once) expect_news(*end, Kind::kPeerLost, WorkerId(1));
      expect_news(*end, Kind::kPeerBack, WorkerId(1));
      for (const std::size_t bytes : {300u, 301u, 302u}) end->send(WorkerId(1), frame_of(bytes));
      for (const std::size_t bytes : {300u, 301u, 302u}) expect_frame(*end, WorkerId(1), bytes);
    }
    ends[0]->send(WorkerId(2), frame_of(400));  // between the survivors nothing has changed
    expect_frame(*ends[1], WorkerId(0), 400);
  }

  SystemRuntime runtime_;
};

TEST_F(ZmqReturning, AMemberThatDiedComesBack) { die_and_return(false); }
TEST_F(ZmqReturning, AMemberThatComesBackAtOnceIsLostFirst) { die_and_return(true); }

TEST_F(ZmqReturning, AMemberMayLeaveAndComeBackAgainAndAgain) {
  Members ends;
  for (int rank = 0; rank < kMembers; ++rank)
    ends.push_back(make_zmq_transport(runtime_, options_of(rank)));
  const std::vector<std::string> endpoints = endpoints_of(ends);
  for (const auto& end : ends) end->join(endpoints);
  for (const auto& end : ends) expect_all_here(*end);
  for (std::size_t times = 1; times <= 5; ++times) {
    ends[1].reset();
    for (const int other : {0, 2})
      expect_news(*ends[static_cast<std::size_t>(other)], Kind::kPeerLost, WorkerId(1));
    ends[1] = make_zmq_transport(runtime_, options_of(1, endpoints[1]));
    ends[1]->join(endpoints);
    expect_all_here(*ends[1]);
    for (const int other : {0, 2}) {
      NetworkTransport& end = *ends[static_cast<std::size_t>(other)];
      expect_news(end, Kind::kPeerBack, WorkerId(1));
      end.send(WorkerId(1), frame_of(times));
      expect_frame(*ends[1], WorkerId(other), times);
      ends[1]->send(WorkerId(other), frame_of(10 + times));
      expect_frame(end, WorkerId(1), 10 + times);
    }
  }
}

TEST_F(ZmqReturning, MembersMayBeginWithoutOneThatComesLater) {
  Members ends;
  for (int rank = 0; rank < kMembers; ++rank)
    ends.push_back(make_zmq_transport(runtime_, options_of(rank)));
  const std::vector<std::string> endpoints = endpoints_of(ends);
  ends[2].reset();
  const std::vector<WorkerId> here = {WorkerId(0), WorkerId(1)};
  for (int rank = 0; rank < 2; ++rank) ends[static_cast<std::size_t>(rank)]->join(endpoints);
  for (int rank = 0; rank < 2; ++rank) {
    NetworkTransport& end = *ends[static_cast<std::size_t>(rank)];
    const auto all = end.await_members(in(0s));
    ASSERT_FALSE(all);
    EXPECT_THAT(all.error().what, HasSubstr("member 2 at "));
    const auto absent = end.await_members(in(60s), here);
    ASSERT_TRUE(absent) << absent.error().what;
    EXPECT_THAT(*absent, ElementsAre(WorkerId(2)));
    end.send(WorkerId(2), frame_of(200));  // nobody ever gets this
  }
  ends[2] = make_zmq_transport(runtime_, options_of(2, endpoints[2]));
  ends[2]->join(endpoints);
  expect_all_here(*ends[2]);
  for (int rank = 0; rank < 2; ++rank) {
    NetworkTransport& end = *ends[static_cast<std::size_t>(rank)];
    expect_news(end, Kind::kPeerBack, WorkerId(2));
    end.send(WorkerId(2), frame_of(300));
    expect_frame(*ends[2], WorkerId(rank), 300);
    expect_all_here(end);
  }
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
