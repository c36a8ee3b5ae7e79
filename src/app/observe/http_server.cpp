// SPDX-License-Identifier: Apache-2.0
#include "app/observe/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <utility>

#include "core/base/log.h"
#include "core/base/names.h"

namespace isthmus::app {
namespace {

constexpr Duration kRequestWindow = std::chrono::seconds(1);
constexpr Duration kNoRoom = std::chrono::milliseconds(200);  // after the machine refused one
constexpr double kLongestRequestWait = 60;                    // seconds

constexpr Named<int> kReasons[] = {
    {200, "OK"},
    {400, "Bad Request"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {421, "Misdirected Request"},
    {431, "Request Header Fields Too Large"},
    {503, "Service Unavailable"},
};

std::string_view reason(int status) { return name_in(kReasons, status, "Internal Server Error"); }

/// The page's own script and style, its own status, nothing else.
constexpr std::string_view kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
    "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string whole_reply(const HttpReply& reply, bool head) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Content-Security-Policy: {}\r\n{}\r\n{}",
      reply.status, reason(reply.status), reply.type, reply.body.size(), kPolicy,
      reply.status == 405 ? "Allow: GET, HEAD\r\n" : "", head ? "" : reply.body);
}

std::string refusal(int status, std::string_view text) {
  HttpReply reply;
  reply.status = status;
  reply.body = fmt::format("{}\n", text);
  return whole_reply(reply, false);
}

}  // namespace

HttpServer::HttpServer(Runtime& runtime, const HttpAddress& address, Handler handler,
                       const HttpLimits& limits)
    : runtime_(runtime),
      limits_(limits),
      handler_(std::move(handler)),
      listener_(TcpSocket::listen_at(address.host, address.port)),
      address_(address),
      window_begin_(runtime.clock().now()),
      listen_again_(window_begin_) {
  address_.port = listener_.port();
  task_ = runtime_.spawn("status page", [this] { serve(); });
}

HttpServer::~HttpServer() {
  stop_.ring();
  task_.reset();
}

void HttpServer::serve() {
  try {
    while (!stopping_) turn();
  } catch (const std::exception& error) {
    log_warning("the run's page is gone, the run goes on: {}", error.what());
  }
  connections_.clear();
}

void HttpServer::turn() {
  TimePoint now = runtime_.clock().now();
  TimePoint until = now + std::chrono::duration_cast<Duration>(
                              std::chrono::duration<double>(kLongestRequestWait));
  std::vector<Waited> all = {{.descriptor = stop_.descriptor(), .to_read = true}};
  const bool listens = now >= listen_again_;
  all.push_back({.descriptor = listener_.descriptor(), .to_read = listens});
  if (!listens) until = listen_again_;
  for (const Connection& each : connections_) {
    const bool writes = !each.output.empty() && !each.draining;
    all.push_back({.descriptor = each.socket.descriptor(), .to_read = !writes, .to_write = writes});
    until = std::min(until, each.deadline);
  }
  wait_for_any(all, in_seconds(until - now));
  stopping_ = all[0].ready;
  now = runtime_.clock().now();
  std::size_t i = 2;
  for (auto each = connections_.begin(); each != connections_.end(); ++i) {
    const bool over = now >= each->deadline || (all[i].ready && !stopping_ && !advance(*each, now));
    each = over ? connections_.erase(each) : std::next(each);
  }
  if (listens && all[1].ready && !stopping_) take_connections(now);
}

void HttpServer::take_connections(TimePoint now) {
  if (now - window_begin_ >= kRequestWindow) {
    window_begin_ = now;
    answered_ = 0;
  }
  for (std::size_t taken = 0; taken < limits_.connections; ++taken) {
    if (answered_ >= limits_.requests_per_second) {
      listen_again_ = window_begin_ + kRequestWindow;
      return;
    }
    bool failed = false;
    std::optional<TcpSocket> socket = listener_.accept(failed);
    if (failed) listen_again_ = now + kNoRoom;
    if (!socket) {
      return;
    }
    if (connections_.size() >= limits_.connections) connections_.pop_front();
    connections_.push_back({.socket = *std::move(socket),
                            .deadline = now + limits_.patience,
                            .input = {},
                            .output = {}});
    ++answered_;
    // A request mostly comes with its connection: it is answered before others can push it out.
    if (!advance(connections_.back(), now)) connections_.pop_back();
  }
}

bool HttpServer::advance(Connection& connection, TimePoint now) {
  std::array<char, 4096> buffer;
  if (connection.draining) {
    const Transfer got = connection.socket.read_some(buffer);
    connection.drained += got.bytes;
    return !got.closed && connection.drained <= limits_.drained_bytes;
  }
  while (connection.output.empty()) {
    const Transfer got = connection.socket.read_some(buffer);
    if (got.closed) {
      return false;
    }
    if (got.bytes == 0) {
      return true;
    }
    connection.input.append(buffer.data(), got.bytes);
    if (const std::size_t end = connection.input.find("\r\n\r\n"); end != std::string::npos) {
      connection.output = answer(std::string_view(connection.input).substr(0, end + 2));
    } else if (connection.input.size() > limits_.request_bytes) {
      connection.output = refusal(431, "the request is too long");
    }
  }
  while (connection.sent < connection.output.size()) {
    const Transfer sent =
        connection.socket.write_some(std::string_view(connection.output).substr(connection.sent));
    if (sent.closed) {
      return false;
    }
    if (sent.bytes == 0) {
      return true;
    }
    connection.sent += sent.bytes;
  }
  // Closing at once would cut off a client that is still sending before it has read the reply.
  connection.socket.finish_writing();
  connection.draining = true;
  connection.deadline = std::min(connection.deadline, now + limits_.drain);
  return true;
}

std::string HttpServer::answer(std::string_view request) {
  const auto asked = read_http_request(request, address_.loopback());
  if (!asked) {
    return refusal(asked.error().status, asked.error().why);
  }
  HttpReply reply;
  try {
    reply = handler_(asked->path);
  } catch (const std::exception& error) {
    reply.status = 500;
    reply.type = HttpReply().type;
    reply.body = fmt::format("{}\n", error.what());
  }
  return whole_reply(reply, asked->head);
}

}  // namespace isthmus::app
