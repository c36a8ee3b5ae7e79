// SPDX-License-Identifier: Apache-2.0
#include "app/observe/http_message.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "app/observe/http_address.h"
#include "core/base/trimmed.h"

namespace isthmus::app {
namespace {

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

}  // namespace

HttpReply metrics_reply(std::string metrics) {
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = std::move(metrics)};
}
HttpReply health_reply(bool healthy, const std::string& word) {
  return {.status = healthy ? 200 : 503, .body = word + "\n"};
}
HttpReply absent_reply(std::string_view pages) {
  return {.status = 404, .body = "there are " + std::string(pages) + "\n"};
}

std::optional<std::string_view> http_header(std::string_view head, std::string_view name) {
  std::size_t line = head.find("\r\n");
  while (line != std::string_view::npos && line + 2 < head.size()) {
    const std::size_t next = head.find("\r\n", line + 2);
    const std::string_view text = head.substr(line + 2, next - line - 2);
    const std::size_t colon = text.find(':');
    if (colon != std::string_view::npos && same_word(text.substr(0, colon), name)) {
      return trimmed(text.substr(colon + 1), " \t");
    }
    line = next;
  }
  return std::nullopt;
}

Expected<HttpRequest, HttpRefusal> read_http_request(std::string_view head, bool own_names) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last <= first + 1 ||
      !line.substr(last + 1).starts_with("HTTP/1.")) {
    return Unexpected<HttpRefusal>({400, "this is no HTTP request"});
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (method != "GET" && method != "HEAD") {
    return Unexpected<HttpRefusal>({405, "only GET and HEAD"});
  }
  if (own_names && !is_own_name(http_header(head, "host").value_or(""))) {
    return Unexpected<HttpRefusal>({421, "ask for this machine by number, or as localhost"});
  }
  return HttpRequest{target.substr(0, target.find_first_of("?#")), method == "HEAD"};
}

Expected<HttpReply, std::string> read_http_reply(std::string_view text) {
  constexpr std::size_t kStatusAt = 9;  // after "HTTP/1.1 "
  const std::size_t end = text.find("\r\n\r\n");
  HttpReply reply;
  const char* digits = text.data() + std::min(kStatusAt, text.size());
  const auto [after, error] = std::from_chars(digits, text.data() + text.size(), reply.status);
  if (end == std::string_view::npos || !text.starts_with("HTTP/1.") || error != std::errc() ||
      after != digits + 3 || reply.status < 100) {
    return Unexpected<std::string>("what answers there does not speak HTTP");
  }
  reply.body = text.substr(end + 4);
  const auto length = http_header(text.substr(0, end + 2), "content-length");
  if (length && *length != std::to_string(reply.body.size())) {
    return Unexpected<std::string>("the reply is not as long as it says");
  }
  return reply;
}

}  // namespace isthmus::app
