// SPDX-License-Identifier: Apache-2.0
#include "transport/links/tcp/tcp_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kBacklog = 32;

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// RETURNS: why the name has no address.
Expected<Addresses, std::string> resolve(const std::string& host, int port, bool to_listen) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return Unexpected<std::string>(::gai_strerror(error));
  }
  return Addresses(found, &::freeaddrinfo);
}

int open_socket(const addrinfo& address) {
  return ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                  address.ai_protocol);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Expected<std::vector<TcpAddress>, std::string> resolve_tcp(const std::string& host, int port) {
  const auto found = resolve(host, port, false);
  if (!found) return Unexpected<std::string>(found.error());
  std::vector<TcpAddress> all;
  for (const addrinfo* each = found->get(); each != nullptr; each = each->ai_next) {
    const auto* bytes = reinterpret_cast<const std::byte*>(each->ai_addr);
    all.push_back({.family = each->ai_family, .bytes = {bytes, bytes + each->ai_addrlen}});
  }
  if (all.empty()) return Unexpected<std::string>("no address");
  return all;
}

bool is_numeric_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  const bool numeric = ::getaddrinfo(host.c_str(), nullptr, &hints, &found) == 0;
  if (numeric) ::freeaddrinfo(found);
  return numeric;
}

TcpSocket TcpSocket::listen_at(const std::string& host, int port) {
  const auto addresses = resolve(host, port, true);
  if (!addresses) {
    throw SystemError(
        fmt::format("cannot listen at {}:{}: {}: give an address of this machine, or 127.0.0.1",
                    host, port, addresses.error()));
  }
  TcpSocket socket(open_socket(**addresses));
  const int yes = 1;
  // A port whose last connections are still in TIME_WAIT is free.
  if (socket.descriptor_ < 0 ||
      ::setsockopt(socket.descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(socket.descriptor_, (*addresses)->ai_addr, (*addresses)->ai_addrlen) != 0 ||
      ::listen(socket.descriptor_, kBacklog) != 0) {
    const int error = errno;
    const char* remedy = error == EADDRINUSE
                             ? "another program listens there; choose another port, "
                               "or 0 for any free one"
                         : error == EADDRNOTAVAIL ? "it is no address of this machine"
                         : error == EACCES        ? "ports below 1024 are not for everybody"
                                                  : "choose another address";
    throw SystemError(
        fmt::format("cannot listen at {}:{}: {}: {}", host, port, std::strerror(error), remedy));
  }
  return socket;
}

Expected<TcpSocket, std::string> TcpSocket::start_connect(const TcpAddress& address) {
  TcpSocket socket(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* place = reinterpret_cast<const sockaddr*>(address.bytes.data());
  if (socket.descriptor_ < 0 ||
      (::connect(socket.descriptor_, place, static_cast<socklen_t>(address.bytes.size())) != 0 &&
       errno != EINPROGRESS)) {
    return Unexpected<std::string>(std::strerror(errno));
  }
  return socket;
}

std::string TcpSocket::connect_error() const {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? "" : std::strerror(error);
}

Expected<TcpSocket, std::string> TcpSocket::connect_to(const std::string& host, int port,
                                                       double seconds,
                                                       const std::function<double()>& now_s) {
  const auto addresses = resolve_tcp(host, port);
  if (!addresses) {
    return Unexpected<std::string>(addresses.error());
  }
  const double deadline = now_s() + seconds;
  std::string why;
  for (const TcpAddress& each : *addresses) {
    auto socket = start_connect(each);
    if (!socket) {
      why = socket.error();
      continue;
    }
    std::vector<Waited> all = {{.descriptor = socket->descriptor(), .to_write = true}};
    wait_for_any(all, deadline - now_s());
    why = all.front().ready ? socket->connect_error() : std::strerror(ETIMEDOUT);
    if (why.empty()) return socket;
  }
  return Unexpected<std::string>(why);
}

TcpSocket::TcpSocket(TcpSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

TcpSocket& TcpSocket::operator=(TcpSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

TcpSocket::~TcpSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int TcpSocket::port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw SystemError(
        fmt::format("the port of a listening socket cannot be read: {}", std::strerror(errno)));
  }
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::optional<TcpSocket> TcpSocket::accept(bool& failed) const {
  const int accepted = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  failed = accepted < 0 && !would_block(errno) && errno != ECONNABORTED;
  if (accepted < 0) {
    return std::nullopt;
  }
  return TcpSocket(accepted);
}

Transfer TcpSocket::read_some(std::span<char> into) const {
  const ssize_t got = ::recv(descriptor_, into.data(), into.size(), 0);
  if (got > 0) {
    return {.bytes = static_cast<std::size_t>(got)};
  }
  return {.closed = got == 0 || !would_block(errno)};
}

Transfer TcpSocket::write_some(std::string_view bytes) const {
  const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent >= 0) {
    return {.bytes = static_cast<std::size_t>(sent)};
  }
  return {.closed = !would_block(errno)};
}

std::string TcpSocket::peer() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  auto* place = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(descriptor_, place, &size) != 0 ||
      ::getnameinfo(place, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return host.data();
}

void TcpSocket::finish_writing() const { (void)::shutdown(descriptor_, SHUT_WR); }

Alarm::Alarm() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) {
    throw SystemError(fmt::format("an event descriptor: {}", std::strerror(errno)));
  }
}

Alarm::~Alarm() { ::close(descriptor_); }

void Alarm::ring() const {
  const std::uint64_t one = 1;
  (void)!::write(descriptor_, &one, sizeof one);
}

void wait_for_any(std::vector<Waited>& all, double seconds) {
  std::vector<pollfd> polled;
  for (const Waited& each : all) {
    const int events = (each.to_read ? POLLIN : 0) | (each.to_write ? POLLOUT : 0);
    // Else a broken connection would be ready all the time.
    const int descriptor = events == 0 ? -1 : each.descriptor;
    polled.push_back({.fd = descriptor, .events = static_cast<short>(events), .revents = 0});
  }
  const double bounded = std::clamp(seconds, 0.0, 3600.0);
  if (::poll(polled.data(), polled.size(), static_cast<int>(std::ceil(bounded * 1000))) < 0 &&
      errno != EINTR) {
    throw SystemError(fmt::format("waiting for sockets: {}", std::strerror(errno)));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].ready = polled[i].revents != 0;
  }
}

}  // namespace isthmus
