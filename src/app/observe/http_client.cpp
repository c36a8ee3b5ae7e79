// SPDX-License-Identifier: Apache-2.0
#include "app/observe/http_client.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

#include "record/wall_clock.h"
#include "transport/links/tcp/tcp_socket.h"

namespace isthmus::app {
namespace {

constexpr std::size_t kLargestReply = std::size_t{8} << 20;

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
      return read_http_reply(text);
    }
  }
  return Unexpected<std::string>(text.size() < kLargestReply
                                     ? fmt::format("no whole reply within {:g} s", seconds)
                                     : "the reply is too large to be a run's");
}

}  // namespace isthmus::app
