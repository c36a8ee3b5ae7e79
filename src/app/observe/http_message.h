// SPDX-License-Identifier: Apache-2.0
// What a run's page is asked and answers, as bytes: as much of HTTP/1 as a GET takes. Pure.
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

/// A request that is served. Borrows the bytes it was read from.
struct HttpRequest {
  std::string_view path;  // without a query
  bool head = false;      // of the reply the headers alone
};
/// ... and why one is not.
struct HttpRefusal {
  int status = 400;
  std::string_view why;
};

/// Value of a header. `head`: the first line and the headers, each with its line's end.
[[nodiscard]] std::optional<std::string_view> http_header(std::string_view head,
                                                          std::string_view name);

/// `head`: as above. `own_names`: of hosts only those that `is_own_name` are answered.
[[nodiscard]] Expected<HttpRequest, HttpRefusal> read_http_request(std::string_view head,
                                                                   bool own_names);

/// All that came until the server hung up. Its type is not read.
/// RETURNS: why it is no whole reply.
[[nodiscard]] Expected<HttpReply, std::string> read_http_reply(std::string_view text);

}  // namespace isthmus::app
