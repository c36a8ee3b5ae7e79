// SPDX-License-Identifier: Apache-2.0
// A TCP connection to a member's port, by hand: what port scanners and hostile programs send.
// Speaks enough of ZMTP 3.0 (https://rfc.zeromq.org/spec/23) to pass for a ZeroMQ socket.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace isthmus::testing_support {

class RawPeer {
 public:
  /// `endpoint`: tcp://127.0.0.1:PORT. Reads give up after 20 s.
  explicit RawPeer(const std::string& endpoint) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    EXPECT_TRUE(connected_);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~RawPeer() { ::close(fd_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  /// RETURNS: false when the other side has hung up.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  /// Exactly n bytes, or fewer when the other side hangs up.
  std::string read(std::size_t n) {
    std::string bytes(n, '\0');
    std::size_t have = 0;
    while (have < n) {
      const ssize_t got = ::recv(fd_, bytes.data() + have, n - have, 0);
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }

  bool send_greeting(std::string_view mechanism) {
    std::string greeting = std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0", 12);
    greeting += mechanism;
    greeting.resize(64, '\0');
    return send(greeting);
  }
  /// Greets as a DEALER without security.
  void shake_hands() {
    ASSERT_TRUE(send_greeting("NULL"));
    ASSERT_EQ(read(64).size(), 64u);
    const std::string ready =
        std::string("\x05READY\x0bSocket-Type", 18) + std::string("\0\0\0\x06", 4) + "DEALER";
    ASSERT_TRUE(send(std::string{'\x04', static_cast<char>(ready.size())} + ready));
    const std::string theirs = read(2);
    ASSERT_EQ(theirs.size(), 2u);
    read(static_cast<unsigned char>(theirs[1]));
  }
  /// One part of a message.
  bool send_part(std::string_view bytes, bool more) {
    std::string head(1, static_cast<char>((more ? 1 : 0) | 2));
    for (int shift = 56; shift >= 0; shift -= 8) {
      head += static_cast<char>(bytes.size() >> shift & 0xff);
    }
    return send(head) && send(bytes);
  }
  std::string read_part() {
    const std::string flags = read(1);
    if (flags.empty()) return {};
    const bool is_long = (flags[0] & 2) != 0;
    std::size_t n = 0;
    for (const char byte : read(is_long ? 8 : 1)) n = n << 8 | static_cast<unsigned char>(byte);
    return read(n);
  }

 private:
  int fd_;
  bool connected_ = false;
};

/// Listens, and leaves connections unanswered once the first have filled its queue.
class FullListener {
 public:
  FullListener() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(fd_, 0), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    endpoint_ = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    first_ = std::make_unique<RawPeer>(endpoint_);
  }
  ~FullListener() { ::close(fd_); }
  FullListener(const FullListener&) = delete;
  FullListener& operator=(const FullListener&) = delete;
  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }

 private:
  int fd_;
  std::string endpoint_;
  std::unique_ptr<RawPeer> first_;
};

}  // namespace isthmus::testing_support
