// SPDX-License-Identifier: Apache-2.0
#include "app/observe/http_server.h"

#include <gmock/gmock.h>

#include <array>

#include "app/observe/http_client.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "record/wall_clock.h"

namespace isthmus::app::this_file {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr double kPatience = 60;  // seconds: a machine may be busy

class HttpServerTest : public testing::Test {
 protected:
  /// So patient that a busy machine does not matter.
  static HttpLimits patient() {
    HttpLimits limits;
    limits.patience = std::chrono::hours(1);
    return limits;
  }
  HttpServer& start(const HttpLimits& limits = patient()) {
    server = std::make_unique<HttpServer>(
        runtime, HttpAddress{"127.0.0.1", 0},
        [this](std::string_view path) {
          HttpReply reply;
          if (path == "/broken") throw RunError("it broke");
          reply.body = path == "/large" ? std::string(large, 'x') : "page " + std::string(path);
          return reply;
        },
        limits);
    return *server;
  }
  [[nodiscard]] TcpSocket connect() const {
    auto socket =
        TcpSocket::connect_to("127.0.0.1", server->address().port, kPatience, monotonic_now);
    if (!socket) throw RunError(socket.error());
    return std::move(*socket);
  }
  /// All that comes until the server hangs up; empty when it does so without a word.
  static std::string all_of(const TcpSocket& socket) {
    std::string text;
    std::array<char, 65536> buffer;
    const double deadline = monotonic_now() + kPatience;
    while (monotonic_now() < deadline) {
      std::vector<Waited> all = {{.descriptor = socket.descriptor(), .to_read = true}};
      wait_for_any(all, 1);
      const Transfer got = socket.read_some(buffer);
      text.append(buffer.data(), got.bytes);
      if (got.closed) return text;
    }
    ADD_FAILURE() << "the server did not hang up";
    return text;
  }
  [[nodiscard]] std::string say(std::string_view request) const {
    const TcpSocket socket = connect();
    (void)socket.write_some(request);
    return all_of(socket);
  }

  static constexpr std::size_t large = 12'000'000;
  SystemRuntime runtime;
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpServerTest, AnswersGetAndHead) {
  start();
  const std::string get = say("GET /a?b=c HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(get, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(get, HasSubstr("Content-Length: 7\r\n"));
  EXPECT_THAT(get, testing::EndsWith("\r\n\r\npage /a"));
  const std::string head = say("HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Length: 7\r\n"));
  EXPECT_THAT(head, testing::EndsWith("\r\n\r\n"));
}

TEST_F(HttpServerTest, RefusesEverythingElseInWords) {
  start();
  EXPECT_THAT(say("POST / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(say("hello\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(say("GET  HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(say("GET /" + std::string(9000, 'a')), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(say("GET /broken HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(say("GET /a HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200 ")) << "after all of it";
}

TEST_F(HttpServerTest, OnLoopbackForeignNamesAreRefused) {
  start();
  EXPECT_THAT(say("GET / HTTP/1.1\r\nhOST:  evil.example:80\r\n\r\n"), StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(say("GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, TheClientReadsWhatTheServerWrites) {
  start();
  const auto reply = http_get(server->address(), "/large", kPatience);
  EXPECT_FALSE(reply) << "more than a client takes";
  const auto small = http_get(server->address(), "/x", kPatience);
  ASSERT_TRUE(small) << small.error();
  EXPECT_EQ(small->status, 200);
  EXPECT_EQ(small->body, "page /x");
}

TEST_F(HttpServerTest, AReplyThatIsCutOffIsNone) {
  const TcpSocket listener = TcpSocket::listen_at("127.0.0.1", 0);
  const std::unique_ptr<Task> task = runtime.spawn("cuts off", [&] {
    std::vector<Waited> all = {{.descriptor = listener.descriptor(), .to_read = true}};
    wait_for_any(all, kPatience);
    bool failed = false;
    const auto socket = listener.accept(failed);
    if (!socket) return;
    all = {{.descriptor = socket->descriptor(), .to_read = true}};
    wait_for_any(all, kPatience);
    std::array<char, 4096> request;
    (void)socket->read_some(request);
    (void)socket->write_some("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"v\":");
  });
  const auto reply = http_get({"127.0.0.1", listener.port()}, "/status.json", kPatience);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error(), "the reply is not as long as it says");
}

TEST_F(HttpServerTest, AReplyLargerThanTheSocketsBufferArrivesWhole) {
  start();
  EXPECT_GT(say("GET /large HTTP/1.1\r\n\r\n").size(), large);
}

TEST_F(HttpServerTest, HalfARequestIsHungUpOn) {
  HttpLimits limits;
  limits.patience = std::chrono::milliseconds(50);
  start(limits);
  EXPECT_EQ(say("GET / HT"), "");
}

TEST_F(HttpServerTest, WhoGoesOnSendingAfterTheReplyIsHungUpOn) {
  HttpLimits limits = patient();
  limits.drain = std::chrono::hours(1);
  start(limits);
  const TcpSocket socket = connect();
  (void)socket.write_some("GET /a HTTP/1.1\r\n\r\n");
  const std::string flood(65536, 'x');
  const double deadline = monotonic_now() + kPatience;
  bool closed = false;
  while (!closed && monotonic_now() < deadline) {
    std::vector<Waited> all = {{.descriptor = socket.descriptor(), .to_write = true}};
    wait_for_any(all, 1);
    closed = socket.write_some(flood).closed;
  }
  EXPECT_TRUE(closed);
}

TEST_F(HttpServerTest, ManySilentClientsDoNotKeepOthersOut) {
  HttpLimits limits = patient();
  limits.connections = 4;
  limits.requests_per_second = 1000;
  start(limits);
  std::vector<TcpSocket> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(connect());
    (void)silent.back().write_some("GET / HT");
  }
  EXPECT_THAT(say("GET /a HTTP/1.1\r\n\r\n"), HasSubstr("page /a"));
}

TEST_F(HttpServerTest, EndsAtOnceWhateverClientsAreDoing) {
  start();
  const TcpSocket half = connect();
  (void)half.write_some("GET / HT");
  const TcpSocket reading_nothing = connect();
  (void)reading_nothing.write_some("GET /large HTTP/1.1\r\n\r\n");
  (void)http_get(server->address(), "/x", kPatience);  // both have been seen by now
  server.reset();                                      // would block for an hour
  EXPECT_EQ(all_of(half), "");
}

TEST_F(HttpServerTest, SoManyRequestsASecondAndNoMore) {
  HttpLimits limits = patient();
  limits.requests_per_second = 5;
  start(limits);
  const double begin = monotonic_now();
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(http_get(server->address(), "/x", kPatience));
  }
  EXPECT_GE(monotonic_now() - begin, 1.0) << "twelve take two whole seconds' shares";
}

TEST_F(HttpServerTest, APortThatIsTakenIsRefusedByName) {
  start();
  try {
    const HttpServer second(runtime, server->address(),
                            [](std::string_view) { return HttpReply(); });
    FAIL() << "two servers at one port";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(server->address().port)));
    EXPECT_THAT(error.what(), HasSubstr("another program listens there"));
  }
}

TEST(HttpAddress, IsAHostAndAPort) {
  EXPECT_EQ(parse_http_address("k", "127.0.0.1:9090").port, 9090);
  EXPECT_EQ(parse_http_address("k", "[::1]:0").host, "::1");
  EXPECT_EQ(parse_http_address("k", "east.example.org:1").host, "east.example.org");
  for (const char* wrong : {"", "9090", ":9090", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                            "127.0.0.1:-1", "::1:80", "http://a:1", "a b:1", "[]:1", "a:+1"}) {
    EXPECT_THROW((void)parse_http_address("log.http", wrong), ConfigError) << wrong;
  }
}

TEST(HttpAddress, KnowsWhatIsThisMachineAlone) {
  for (const char* own : {"127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"}) {
    EXPECT_TRUE(parse_http_address("k", own).loopback()) << own;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.evil.example:1"}) {
    EXPECT_FALSE(parse_http_address("k", open).loopback()) << open;
  }
}

TEST(HttpAddress, UrlsLeadBackToTheAddress) {
  EXPECT_EQ(url_of({"0.0.0.0", 80}), "http://127.0.0.1:80/");
  EXPECT_EQ(url_of({"::1", 81}), "http://[::1]:81/");
  EXPECT_EQ(parse_url("http://[::1]:81/").address.host, "::1");
  EXPECT_EQ(parse_url("http://a:81").address.port, 81);
  EXPECT_EQ(parse_url("http://a/x").address.port, 80);
  for (const char* wrong : {"https://a:1/", "http://", "http://:1/", "http://a:0/"}) {
    EXPECT_THROW((void)parse_url(wrong), ConfigError) << wrong;
  }
}

TEST(HttpAddress, OnlyNumbersAndLocalhostAreOwnNames) {
  for (const char* own : {"", "localhost", "localhost:9", "127.0.0.1:9", "[::1]:9", "10.0.0.1"}) {
    EXPECT_TRUE(is_own_name(own)) << own;
  }
  for (const char* other :
       {"evil.example", "evil.example:9", "1.2.3.4.evil:80", "localhost.evil"}) {
    EXPECT_FALSE(is_own_name(other)) << other;
  }
}

}  // namespace
}  // namespace isthmus::app::this_file
