// SPDX-License-Identifier: Apache-2.0
#include "app/common/free_ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "isthmus/errors.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

constexpr int kFirst = 10000;  // below are ports that programs are known by
constexpr int kLast = 65535;
constexpr int kTries = 1000;

/// Ports that the kernel does not hand out by itself: every connection that begins takes such a
/// port, so one of them may be taken before a site listens on it.
class QuietPorts {
 public:
  QuietPorts() {
    std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
    int low = 0, high = 0;
    if (!(range >> low >> high)) return;
    for (int port = kFirst; port <= kLast; ++port) {
      if (port < low || port > high) ports_.push_back(port);
    }
  }
  /// One after another from any; 0, which is any, where there are none.
  int next() { return ports_.empty() ? 0 : ports_[next_++ % ports_.size()]; }

 private:
  std::vector<int> ports_;
  std::size_t next_ = std::stoul(random_id().substr(0, 8), nullptr, 16);
};

/// The port that `socket` holds afterwards, 0 with errno where it has none.
int hold(int socket, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const bool ok = ::bind(socket, any, size) == 0 && ::getsockname(socket, any, &size) == 0;
  return ok ? ntohs(address.sin_port) : 0;
}

}  // namespace

std::vector<int> free_loopback_ports(std::size_t count) {
  QuietPorts quiet;
  std::vector<int> sockets;  // all held at once, so that the ports differ
  std::vector<int> ports;
  int error = 0;
  while (ports.size() < count && error == 0) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int port = 0;
    for (int i = 0; sockets.back() >= 0 && port == 0 && i < kTries; ++i) {
      port = hold(sockets.back(), i + 1 < kTries ? quiet.next() : 0);  // at last any
    }
    if (port == 0) error = errno;
    ports.push_back(port);
  }
  for (const int each : sockets) {
    if (each >= 0) ::close(each);
  }
  if (error != 0) {
    throw SystemError(fmt::format("no free port on loopback: {}", std::strerror(error)));
  }
  return ports;
}

}  // namespace isthmus::app
