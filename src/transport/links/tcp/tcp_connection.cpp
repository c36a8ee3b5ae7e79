// SPDX-License-Identifier: Apache-2.0
#include "transport/links/tcp/tcp_connection.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace isthmus {

namespace {

/// What the kernel knows of a connection. RETURNS: nothing where it tells fewer than `needed`
/// bytes.
std::optional<tcp_info> facts_of(int fd, std::size_t needed) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (fd < 0 || ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < needed) {
    return std::nullopt;
  }
  return info;
}

}  // namespace

std::optional<Duration> round_trip(int fd) {
  const auto info = facts_of(fd, offsetof(tcp_info, tcpi_min_rtt) + sizeof(tcp_info::tcpi_min_rtt));
  // The kernel says 0 or all ones as long as nothing was acknowledged.
  if (!info || info->tcpi_rtt == 0 || info->tcpi_min_rtt == ~__u32{0}) return std::nullopt;
  return std::chrono::microseconds(info->tcpi_min_rtt);
}

bool is_within_machine(int fd) {
  sockaddr_storage ends[2] = {};
  socklen_t sizes[2] = {sizeof ends[0], sizeof ends[1]};
  if (fd < 0 || ::getsockname(fd, reinterpret_cast<sockaddr*>(&ends[0]), &sizes[0]) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&ends[1]), &sizes[1]) != 0 ||
      ends[0].ss_family != ends[1].ss_family) {
    return false;
  }
  if (ends[0].ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(ends[0]).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(ends[1]).sin_addr.s_addr;
  }
  return ends[0].ss_family == AF_INET6 &&
         IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6&>(ends[0]).sin6_addr,
                            &reinterpret_cast<const sockaddr_in6&>(ends[1]).sin6_addr);
}

double delivery_rate(int fd) {
  const auto info =
      facts_of(fd, offsetof(tcp_info, tcpi_delivery_rate) + sizeof(tcp_info::tcpi_delivery_rate));
  return info ? static_cast<double>(info->tcpi_delivery_rate) : 0;
}

namespace {

/// BBR sends by a timer, packet train by packet train, which near a peer takes a quarter more
/// processor time a byte than sending by acknowledgements. There a lost packet is repeated within a
/// millisecond, so what BBR is for is not needed. Another choice of the system's stands.
void send_by_acknowledgements(int fd) {
  std::array<char, 16> name{};  // as long as the kernel's names get
  socklen_t size = name.size();
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return;
  if (!std::string_view(name.data(), size).starts_with("bbr")) return;
  for (const std::string_view other : {"cubic", "reno"}) {  // which of them it lets us choose
    if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, other.data(),
                     static_cast<socklen_t>(other.size())) == 0) {
      return;
    }
  }
}

}  // namespace

bool pace_connection(int fd, Duration far) {
  const std::optional<Duration> trip = round_trip(fd);
  if (!trip) return false;
  const auto set = [fd](int level, int option, const auto& value) {
    return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
  };
  if (*trip <= far) {
    send_by_acknowledgements(fd);
    set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0);  // the system's, should it have been taken for far
    return false;
  }
  // Any bound on the rate has the kernel space packets, by 1.2 windows a round trip; this one is
  // beyond what a connection reaches.
  constexpr std::uint64_t kBeyondAll = std::uint64_t{1} << 40;
  const bool paced = set(SOL_SOCKET, SO_MAX_PACING_RATE, kBeyondAll);
  return set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes) && paced;
}

void receive_little(int fd) {
  constexpr int kBytes = 64 << 10;
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kBytes, sizeof kBytes);
}

void watch_connection(int fd, Duration dead_after) {
  const auto set = [fd](int level, int option, int value) {
    (void)::setsockopt(fd, level, option, &value, sizeof value);
  };
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(dead_after).count();
  const auto s = std::chrono::ceil<std::chrono::seconds>(dead_after).count();
  constexpr int kProbes = 3;
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(ms));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(std::max<std::int64_t>(s / kProbes, 1)));
  set(IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(std::max<std::int64_t>(s / kProbes, 1)));
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

}  // namespace isthmus
