// SPDX-License-Identifier: Apache-2.0
// The address of a run's page. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace isthmus::app {

struct HttpAddress {
  std::string host;  // without brackets
  int port = 0;      // 0: any free one
  /// True if only this machine can reach it.
  [[nodiscard]] bool loopback() const;
};

/// "HOST:PORT" or "[IPV6]:PORT". THROWS: ConfigError naming `key`, the value and the rule.
[[nodiscard]] HttpAddress parse_http_address(std::string_view key, const std::string& text);

/// "http://127.0.0.1:9090/" for use on this machine: an address for all interfaces becomes
/// loopback.
[[nodiscard]] std::string url_of(const HttpAddress& address);

struct HttpUrl {
  HttpAddress address;
  std::string path;  // "/status.json"
};
[[nodiscard]] inline bool is_url(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://");
}
/// THROWS: ConfigError unless it is an http:// URL.
[[nodiscard]] HttpUrl parse_url(const std::string& text);

/// Whether a request may name this host. A foreign web page can make a browser request a name that
/// resolves to this machine; it cannot make it request a number or localhost.
[[nodiscard]] bool is_own_name(std::string_view host_header);

}  // namespace isthmus::app
