// SPDX-License-Identifier: Apache-2.0
#include "app/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include "app/wall_clock.h"

namespace isthmus::app {
namespace {

constexpr std::size_t kLargestReply = std::size_t{8} << 20;

/// RETURNS: why it is no whole reply.
Expected<HttpReply, std::string> read_reply(const std::string& text) {
  constexpr std::size_t kStatusAt = 9;  // after "HTTP/1.1 "
  const std::size_t end = text.find("\r\n\r\n");
  HttpReply reply;
  const char* digits = text.data() + std::min(kStatusAt, text.size());
  const auto [after, error] = std::from_chars(digits, text.data() + text.size(), reply.status);
  if (end == std::string::npos || !text.starts_with("HTTP/1.") || error != std::errc() ||
      after != digits + 3) {
    return Unexpected<std::string>("what answers there does not speak HTTP");
  }
  reply.body = text.substr(end + 4);
  const auto length = http_header(std::string_view(text).substr(0, end + 2), "content-length");
  if (length && *length != std::to_string(reply.body.size())) {
    return Unexpected<std::string>("the reply is not as long as it says");
  }
  return reply;
}

}  // namespace

Expected<HttpReply, std::string> http_get(const HttpAddress& address, const std::string& path,
                                          double seconds) {
  const double deadline = monotonic_now() + seconds;
  const auto connected = TcpSocket::connect_to(address.host, address.port, seconds, monotonic_now);
  if (!connected) {
    return Unexpected<std::string>(connected.error());
  }
  const TcpSocket& socket = *connected;
  const std::string request = fmt::format(
      "GET {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n\r\n", path,
      address.host.find(':') == std::string::npos ? address.host : "[" + address.host + "]",
      address.port);
  std::string text;
  std::size_t sent = 0;
  std::array<char, 16384> buffer;
  while (monotonic_now() < deadline && text.size() < kLargestReply) {
    std::vector<Waited> all = {{.descriptor = socket.descriptor(),
                                .to_read = sent == request.size(),
                                .to_write = sent < request.size()}};
    wait_for_any(all, deadline - monotonic_now());
    if (sent < request.size()) {
      const Transfer out = socket.write_some(std::string_view(request).substr(sent));
      if (out.closed) {
        return Unexpected<std::string>("the connection broke");
      }
      sent += out.bytes;
      continue;
    }
    const Transfer in = socket.read_some(buffer);
    text.append(buffer.data(), in.bytes);
    if (in.closed) {
      return read_reply(text);
    }
  }
  return Unexpected<std::string>(text.size() < kLargestReply
                                     ? fmt::format("no whole reply within {:g} s", seconds)
                                     : "the reply is too large to be a run's");
}

}  // namespace isthmus::app
