// SPDX-License-Identifier: Apache-2.0
#include "app/observe/http_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

constexpr int kLargestPort = 65535;

struct Parts {
  std::string_view host, port;
};

/// "HOST:PORT" at its last colon, brackets taken off.
std::optional<Parts> split(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return std::nullopt;
  }
  Parts parts{text.substr(0, colon), text.substr(colon + 1)};
  const bool bracketed = parts.host.starts_with('[') && parts.host.ends_with(']');
  if (bracketed) {
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  }
  const bool has_colon = parts.host.find(':') != std::string_view::npos;
  const bool odd = std::ranges::any_of(parts.host, [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return !letter && !(c >= '0' && c <= '9') &&
           std::string_view(".-_:%").find(c) == std::string_view::npos;
  });
  if (parts.host.empty() || has_colon != bracketed || odd) {
    return std::nullopt;
  }
  return parts;
}

std::optional<int> port_of(std::string_view text) {
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 0 || port > kLargestPort) {
    return std::nullopt;
  }
  return port;
}

bool is_ipv4(std::string_view host) {
  return std::ranges::count(host, '.') == 3 &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

bool HttpAddress::loopback() const {
  return host == "localhost" || host == "::1" || (is_ipv4(host) && host.starts_with("127."));
}

HttpAddress parse_http_address(std::string_view key, const std::string& text) {
  const auto parts = split(text);
  const auto port = parts ? port_of(parts->port) : std::nullopt;
  if (!port) {
    throw ConfigError(fmt::format(
        "{} = \"{}\": must be ADDRESS:PORT, for example \"127.0.0.1:9090\" (this machine alone; "
        "port 0: any free one) or \"0.0.0.0:9090\" (open to everyone who reaches the machine)",
        key, text));
  }
  HttpAddress address;
  address.host = std::string(parts->host);
  address.port = *port;
  return address;
}

std::string url_of(const HttpAddress& address) {
  std::string host = address.host == "0.0.0.0" ? "127.0.0.1"
                     : address.host == "::"    ? "::1"
                                               : address.host;
  if (host.find(':') != std::string::npos) {
    host = "[" + host + "]";
  }
  return fmt::format("http://{}:{}/", host, address.port);
}

HttpUrl parse_url(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  constexpr int kDefaultPort = 80;
  if (!text.starts_with(kScheme)) {
    throw ConfigError(fmt::format(
        "{}: a run's page is plain http: give http://ADDRESS:PORT/, as the run printed it", text));
  }
  const std::string_view rest = std::string_view(text).substr(kScheme.size());
  const std::string_view authority = rest.substr(0, rest.find('/'));
  HttpUrl url;
  url.path = std::string(rest.substr(authority.size()));
  const bool has_port = !authority.ends_with(']') && authority.find(':') != std::string_view::npos;
  const std::string whole =
      has_port ? std::string(authority) : fmt::format("{}:{}", authority, kDefaultPort);
  const auto parts = split(whole);
  const auto port = parts ? port_of(parts->port) : std::nullopt;
  if (!port || *port == 0) {
    throw ConfigError(
        fmt::format("{}: no such address: give http://ADDRESS:PORT/, as the run printed it", text));
  }
  url.address.host = std::string(parts->host);
  url.address.port = *port;
  return url;
}

bool is_own_name(std::string_view host_header) {
  const std::size_t colon = host_header.rfind(':');
  const std::size_t bracket = host_header.rfind(']');
  const bool port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  const std::string_view host = port ? host_header.substr(0, colon) : host_header;
  return host.empty() || host == "localhost" || host.starts_with('[') || is_ipv4(host);
}

}  // namespace isthmus::app
