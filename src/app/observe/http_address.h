// SPDX-License-Identifier: Apache-2.0
// Where a run's page is served and found. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace isthmus::app {

struct HttpAddress {
  std::string host;  // without brackets
  int port = 0;      // 0: any free one
  /// Reached from this machine alone.
  [[nodiscard]] bool loopback() const;
};

/// "HOST:PORT" or "[IPV6]:PORT". THROWS: ConfigError naming `key`, the value and the rule.
[[nodiscard]] HttpAddress parse_http_address(std::string_view key, const std::string& text);

/// "http://127.0.0.1:9090/" as this machine reaches it: an address that stands for all of the
/// machine's becomes loopback.
[[nodiscard]] std::string url_of(const HttpAddress& address);

struct HttpUrl {
  HttpAddress address;
  std::string path;  // "/status.json"
};
[[nodiscard]] inline bool is_url(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://");
}
/// THROWS: ConfigError for what is no http:// URL.
[[nodiscard]] HttpUrl parse_url(const std::string& text);

/// Whether a request may name this host. A page elsewhere on the web can make a browser ask a name
/// of its own that leads to this machine; it cannot make it ask for a number or for localhost.
[[nodiscard]] bool is_own_name(std::string_view host_header);

}  // namespace isthmus::app
