// SPDX-License-Identifier: Apache-2.0
// TCP sockets that never block, and a wait for several of them: for relays, and for the page about
// a run. The sockets of links themselves are ZeroMQ's.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/expected.h"

namespace isthmus {

/// The result of one call. `closed`: the other end is gone, or the connection broke.
struct Transfer {
  std::size_t bytes = 0;
  bool closed = false;
};

/// One address of a host name, in the system's form.
struct TcpAddress {
  int family = 0;
  std::vector<std::byte> bytes;
};
/// At least one address, in the order in which to try them. Blocks during a lookup. RETURNS: why
/// the name has none.
[[nodiscard]] Expected<std::vector<TcpAddress>, std::string> resolve_tcp(const std::string& host,
                                                                         int port);

/// Whether `host` is a numeric address, which `resolve_tcp` need not look up.
[[nodiscard]] bool is_numeric_host(const std::string& host);

/// One descriptor; closes it. One thread at a time.
class TcpSocket {
 public:
  /// Listens at a numeric address or name; port 0: any free one.
  /// THROWS: SystemError with the cause: taken, not an address of this machine, not allowed.
  [[nodiscard]] static TcpSocket listen_at(const std::string& host, int port);
  /// Begins to connect; once the socket is ready to write, `connect_error` tells the result.
  /// RETURNS: why it cannot even begin.
  [[nodiscard]] static Expected<TcpSocket, std::string> start_connect(const TcpAddress& address);
  /// Blocks until connected, for at most `seconds`. RETURNS: why it failed, in words.
  [[nodiscard]] static Expected<TcpSocket, std::string> connect_to(
      const std::string& host, int port, double seconds, const std::function<double()>& now_s);
  TcpSocket(TcpSocket&& other) noexcept;
  TcpSocket& operator=(TcpSocket&& other) noexcept;
  ~TcpSocket();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// The local port. THROWS: SystemError when the kernel does not report it.
  [[nodiscard]] int port() const;
  /// The next connection, or nothing. `failed`: the machine lacks the resources for one.
  [[nodiscard]] std::optional<TcpSocket> accept(bool& failed) const;
  [[nodiscard]] Transfer read_some(std::span<char> into) const;
  [[nodiscard]] Transfer write_some(std::string_view bytes) const;
  /// Empty: the connection is open.
  [[nodiscard]] std::string connect_error() const;
  /// The other end's numeric address; empty when the kernel does not report it.
  [[nodiscard]] std::string peer() const;
  /// Tells the other end that no more bytes follow.
  void finish_writing() const;

 private:
  explicit TcpSocket(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

/// A descriptor that one thread waits for and any other thread makes ready, permanently.
class Alarm {
 public:
  /// THROWS: SystemError when the machine refuses.
  Alarm();
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  void ring() const;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// A descriptor to wait for; one with neither to_read nor to_write is ignored.
struct Waited {
  int descriptor = -1;
  bool to_read = false;
  bool to_write = false;
  bool ready = false;  // filled by the wait; a broken connection is ready too
};

/// Blocks until one is ready, for at most `seconds`. THROWS: SystemError.
void wait_for_any(std::vector<Waited>& all, double seconds);

}  // namespace isthmus
