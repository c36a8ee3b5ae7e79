// SPDX-License-Identifier: Apache-2.0
#include "app/free_ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "isthmus/errors.h"

namespace isthmus::app {

std::vector<int> free_loopback_ports(std::size_t count) {
  std::vector<int> sockets;  // all held at once, so that the ports differ
  std::vector<int> ports;
  int error = 0;
  while (ports.size() < count && error == 0) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    const bool ok = sockets.back() >= 0 && ::bind(sockets.back(), any, size) == 0 &&
                    ::getsockname(sockets.back(), any, &size) == 0;
    error = ok ? 0 : errno;
    ports.push_back(ntohs(address.sin_port));
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
