// SPDX-License-Identifier: Apache-2.0
// A server of a few small pages: GET and HEAD of exact paths, one request a connection. Its own
// task does everything without blocking on a client, so neither slow nor many clients can hold
// threads, memory or the end of the run: connections, bytes of a request, seconds of a connection
// and requests a second are bounded. The handler makes the pages.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "app/observe/http_address.h"
#include "app/observe/http_message.h"
#include "isthmus/runtime.h"
#include "transport/links/tcp/tcp_socket.h"

namespace isthmus::app {

struct HttpLimits {
  std::size_t connections = 32;                 // a further one replaces the oldest
  std::size_t request_bytes = 8192;             // line and headers
  Duration patience = std::chrono::seconds(5);  // timeout from connection to end of reply
  Duration drain = std::chrono::seconds(1);     // timeout for the client's close, after its reply
  std::size_t drained_bytes = 64 * 1024;        // most bytes that it may still send meanwhile
  int requests_per_second = 200;                // later ones wait
};

class HttpServer {
 public:
  /// Called by the server's task, one call at a time. `path`: without a query.
  using Handler = std::function<HttpReply(std::string_view path)>;

  /// Listens and serves at once. Borrows the runtime. THROWS: SystemError for an unusable address.
  HttpServer(Runtime& runtime, const HttpAddress& address, Handler handler,
             const HttpLimits& limits = {});
  /// Closes everything at once, whatever clients are doing.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The address, with the actual port.
  [[nodiscard]] const HttpAddress& address() const { return address_; }

 private:
  struct Connection {
    TcpSocket socket;
    TimePoint deadline;
    std::string input;
    std::string output;     // empty until the request is complete
    std::size_t sent = 0;   // of `output`
    bool draining = false;  // replied; waiting for the client's close
    std::size_t drained = 0;
  };
  void serve();
  void turn();
  void take_connections(TimePoint now);
  /// Reads, answers and writes without blocking. RETURNS: false once the connection is done.
  [[nodiscard]] bool advance(Connection& connection, TimePoint now);
  [[nodiscard]] std::string answer(std::string_view request);

  Runtime& runtime_;
  const HttpLimits limits_;
  const Handler handler_;
  TcpSocket listener_;
  HttpAddress address_;
  Alarm stop_;
  // The task's alone:
  std::list<Connection> connections_;  // oldest first
  TimePoint window_begin_;             // for requests a second
  int answered_ = 0;                   // in the window
  TimePoint listen_again_;             // no connections are accepted before
  bool stopping_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus::app
