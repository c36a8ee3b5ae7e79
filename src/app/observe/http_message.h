// SPDX-License-Identifier: Apache-2.0
// Requests and replies of a run's page as bytes: the part of HTTP/1 that a GET needs. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "isthmus/expected.h"

namespace isthmus::app {

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

/// Replies that the pages of a run and of a hub have alike: metrics in Prometheus' format; 200, or
/// 503 if it is not healthy, with a word; 404 naming the pages that there are.
[[nodiscard]] HttpReply metrics_reply(std::string metrics);
[[nodiscard]] HttpReply health_reply(bool healthy, const std::string& word);
[[nodiscard]] HttpReply absent_reply(std::string_view pages);

/// An accepted request. Borrows the bytes it was read from.
struct HttpRequest {
  std::string_view path;  // without a query
  bool head = false;      // only the headers of the reply
};
/// A refused request.
struct HttpRefusal {
  int status = 400;
  std::string_view why;
};

/// Value of a header. `head`: the first line and the headers, each with its line's end.
[[nodiscard]] std::optional<std::string_view> http_header(std::string_view head,
                                                          std::string_view name);

/// `head`: as above. `own_names`: accepts only hosts for which `is_own_name` is true.
[[nodiscard]] Expected<HttpRequest, HttpRefusal> read_http_request(std::string_view head,
                                                                   bool own_names);

/// `text`: all bytes until the server closed. The type is not read. RETURNS: why it is no complete
/// reply.
[[nodiscard]] Expected<HttpReply, std::string> read_http_reply(std::string_view text);

}  // namespace isthmus::app
