// SPDX-License-Identifier: Apache-2.0
// Bytes as what a run's page is asked, as what it answers, as an address of one, and as the line
// with which two machines find together for `bench link`. Checked: no crash, no read outside;
// nothing is served that is no GET or HEAD, nor to a page elsewhere on the web; what is read reads
// the same when it is written again.
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "app/observe/http_address.h"
#include "app/observe/http_message.h"
#include "isthmus/errors.h"
#include "session/run/usage_error.h"
#include "session/site/link_rendezvous.h"

namespace {

using namespace isthmus;
using namespace isthmus::app;

void require(bool condition) {
  if (!condition) std::abort();
}

bool within(std::string_view part, std::string_view whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void check_request(std::string_view text) {
  const std::size_t end = text.find("\r\n\r\n");
  const std::string_view head = end == std::string_view::npos ? text : text.substr(0, end + 2);
  const auto host = http_header(head, "HOST");
  if (host) {
    require(within(*host, head) && host->find("\r\n") == std::string_view::npos);
    require(host->empty() || (host->front() != ' ' && host->back() != ' '));
  }
  const auto anybody = read_http_request(head, false);
  const auto own = read_http_request(head, true);
  if (!anybody) {
    require(anybody.error().status == 400 || anybody.error().status == 405);
    require(!own && own.error().status == anybody.error().status);
    return;
  }
  require(head.starts_with(anybody->head ? "HEAD " : "GET "));
  require(within(anybody->path, head));
  require(anybody->path.find_first_of("?#") == std::string_view::npos);
  require(anybody->path.find("\r\n") == std::string_view::npos);
  const bool named = host && !is_own_name(*host);
  require(own.has_value() == !named);
  require(own ? own->path == anybody->path : own.error().status == 421);
}

void check_reply(std::string_view text) {
  const auto reply = read_http_reply(text);
  if (!reply) {
    require(!reply.error().empty());
    return;
  }
  require(reply->status >= 100 && reply->status <= 999 && reply->body.size() < text.size());
  const std::string written = fmt::format("HTTP/1.1 {} Word\r\ncontent-length: {}\r\n\r\n{}",
                                          reply->status, reply->body.size(), reply->body);
  const auto again = read_http_reply(written);
  require(again && again->status == reply->status && again->body == reply->body);
  require(!read_http_reply(written + "x"));
}

void check_address(const std::string& text) {
  try {
    const HttpAddress address = parse_http_address("key", text);
    require(address.port >= 0 && address.port <= 65535);
    if (address.port > 0 && address.host != "0.0.0.0" && address.host != "::") {
      const HttpUrl url = parse_url(url_of(address));
      require(url.address.host == address.host && url.address.port == address.port);
      require(url.path == "/");
    }
  } catch (const ConfigError&) {
  }
  try {
    const HttpUrl url = parse_url(text);
    require(url.address.port >= 1 && url.address.port <= 65535);
    require(url.path.empty() || url.path.front() == '/');
  } catch (const ConfigError&) {
  }
  try {
    const HostPort place = parse_host_port("--listen", text);
    require(place.port >= 1 && place.port <= 65535);
  } catch (const UsageError&) {
  }
}

void check_call(std::string_view line) {
  const auto meeting = read_call(line);
  if (!meeting) {
    require(!meeting.error().empty());
    return;
  }
  require(meeting->token.size() == 32 && meeting->port >= 1 && meeting->port <= 65535);
  const auto again = read_call(
      fmt::format("isthmus-bench-link 1 {} {} {}", meeting->token, meeting->port, meeting->name));
  require(again && again->token == meeting->token && again->port == meeting->port &&
          again->name == meeting->name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_request(text);
  check_request("GET " + text);
  check_reply(text);
  check_reply("HTTP/1.1 " + text);
  check_address(text);
  check_address("http://" + text);
  check_call(text);
  check_call("isthmus-bench-link 1 " + text);
  return 0;
}
