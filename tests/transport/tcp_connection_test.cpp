// SPDX-License-Identifier: Apache-2.0
// Which connections the kernel is told to take little for, and that it then does. Loopback is near;
// a round trip that counts as far from 0 on makes it far.
#include "transport/links/tcp/tcp_connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;

/// Both ends of a connection over loopback; neither blocks.
class Pair {
 public:
  Pair() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* place = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener, place, size), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    EXPECT_EQ(::getsockname(listener, place, &size), 0);
    sender = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(sender, place, size), 0);
    receiver = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    EXPECT_EQ(::fcntl(sender, F_SETFL, O_NONBLOCK), 0);
  }
  ~Pair() {
    ::close(sender);
    ::close(receiver);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  /// Writes until the kernel takes no more, the other end reading nothing.
  /// RETURNS: what it has taken and not sent.
  int unsent_when_full() const {
    const std::vector<char> bytes(64 << 10);
    while (::send(sender, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
    int unsent = -1;
    EXPECT_EQ(::ioctl(sender, SIOCOUTQNSD, &unsent), 0);
    return unsent;
  }

  int sender = -1;
  int receiver = -1;
};

int unsent_limit(int fd) {
  int limit = -1;
  socklen_t size = sizeof limit;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, &size) == 0 ? limit : -1;
}

/// Whether the kernel spaces packets: whether a bound on their rate is set.
bool spaced(int fd) {
  std::uint64_t rate = 0;
  socklen_t size = sizeof rate;
  EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size), 0);
  return rate != ~std::uint64_t{0};
}

TEST(TcpConnection, LoopbackIsNearAndLeftAlone) {
  const Pair pair;
  ASSERT_TRUE(round_trip(pair.sender));
  EXPECT_GT(*round_trip(pair.sender), 0s);
  EXPECT_EQ(delivery_rate(pair.sender), 0) << "nothing was sent yet";
  (void)pair.unsent_when_full();
  EXPECT_GT(delivery_rate(pair.sender), 1e5);
  const int before = unsent_limit(pair.sender);
  EXPECT_FALSE(pace_connection(pair.sender, 1min));
  EXPECT_EQ(unsent_limit(pair.sender), before);
  EXPECT_FALSE(spaced(pair.sender));
}

std::string congestion_of(int fd) {
  std::array<char, 16> name{};
  socklen_t size = name.size();
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
  return name.data();
}

/// RETURNS: whether this system lets a process choose it.
bool choose_congestion(int fd, const std::string& name) {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

TEST(TcpConnection, ANearPeerIsNotSentToByATimer) {
  const Pair near;
  const Pair far;
  const Pair chosen;
  ASSERT_TRUE(choose_congestion(chosen.sender, "reno"));
  (void)pace_connection(chosen.sender, 1min);
  EXPECT_EQ(congestion_of(chosen.sender), "reno");  // what is no BBR stands
  if (!choose_congestion(near.sender, "bbr") || !choose_congestion(far.sender, "bbr")) {
    GTEST_SKIP() << "this system has no BBR to choose";
  }
  (void)pace_connection(near.sender, 1min);
  EXPECT_NE(congestion_of(near.sender), "bbr");
  ASSERT_TRUE(pace_connection(far.sender, 0s));
  EXPECT_EQ(congestion_of(far.sender), "bbr");
}

TEST(TcpConnection, OfWhatCannotBeSentTheKernelTakesLittleForAFarPeer) {
  Pair near;
  Pair far;
  ASSERT_TRUE(pace_connection(far.sender, 0s));
  EXPECT_EQ(unsent_limit(far.sender), kUnsentBytes);
  EXPECT_TRUE(spaced(far.sender));
  // It looks between segments, and one may be of 64 KiB.
  EXPECT_LE(far.unsent_when_full(), kUnsentBytes + (128 << 10));
  EXPECT_GT(near.unsent_when_full(), kUnsentBytes + (128 << 10));
}

TEST(TcpConnection, WhatWasTakenForFarMayProveToBeNear) {
  const Pair pair;
  const int before = unsent_limit(pair.sender);
  ASSERT_TRUE(pace_connection(pair.sender, 0s));
  ASSERT_EQ(unsent_limit(pair.sender), kUnsentBytes);
  EXPECT_FALSE(pace_connection(pair.sender, 1min));
  EXPECT_EQ(unsent_limit(pair.sender), before);
}

TEST(TcpConnection, WhatIsNoConnectionIsLeftAlone) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  for (const int fd : {-1, ends[0], ends[1]}) {
    EXPECT_FALSE(round_trip(fd));
    EXPECT_EQ(delivery_rate(fd), 0);
    EXPECT_FALSE(pace_connection(fd, 0s));
  }
  const int idle = ::socket(AF_INET, SOCK_STREAM, 0);  // never connected: its distance is not known
  EXPECT_FALSE(round_trip(idle));
  EXPECT_FALSE(pace_connection(idle, 0s));
  for (const int fd : {ends[0], ends[1], idle}) ::close(fd);
}

/// How many of this process's connections are paced.
int paced_connections() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += unsent_limit(fd) == kUnsentBytes ? 1 : 0;
  return count;
}

class PacedMembers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  }
  SystemRuntime runtime_;
};

TEST_F(PacedMembers, WhoeverDialsAFarMemberPacesEveryConnection) {
  constexpr int kMembers = 3, kStreams = 2;  // as joined_members has it
  const auto ends =
      joined_members(runtime_, kMembers, [](MemberOptions& options) { options.far = 0s; });
  EXPECT_EQ(paced_connections(), kMembers * (kMembers - 1) * kStreams);
  // More than a kernel would take at once still comes, and in order.
  for (int i = 0; i < 40; ++i) {
    ends[0]->send(WorkerId(1),
                  std::make_shared<const std::vector<std::byte>>(1 << 19, std::byte(i)));
  }
  for (int i = 0; i < 40; ++i) {
    const auto got = ends[1]->receive(runtime_.clock().now() + 1min);
    ASSERT_TRUE(got) << got.error().what;
    EXPECT_EQ(got->bytes->size(), std::size_t{1} << 19);
    EXPECT_EQ((*got->bytes)[0], std::byte(i));
  }
}

TEST_F(PacedMembers, NearMembersAreNotPaced) {
  const auto ends = joined_members(runtime_, 2, [](MemberOptions& options) { options.far = 1min; });
  EXPECT_EQ(paced_connections(), 0);
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
