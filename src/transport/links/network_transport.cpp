// SPDX-License-Identifier: Apache-2.0
#include "transport/links/network_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kMaxStreams = 64;
constexpr int kMaxMembers = 4096;

bool is_this_machine(std::string_view host) {
  return host.starts_with("127.") || host == "localhost" || host == "[::1]";
}

void check_keys(const MemberOptions& options) {
  const auto refuse = [](const std::string& text) { throw ConfigError(text); };
  const std::vector<std::string>& all = options.member_keys;
  const int self = options.self.value();
  if (!options.keys) {
    if (!all.empty()) {
      refuse(
          fmt::format("member {}: there are public keys of the members, but no secret key of "
                      "this one; name its key file (`isthmus keygen` makes one)",
                      self));
    }
    return;
  }
  if (all.size() != static_cast<std::size_t>(options.members)) {
    refuse(
        fmt::format("member {} has a key file, but there are {} public keys for {} members: "
                    "give every site its key, or none",
                    self, all.size(), options.members));
  }
  for (std::size_t member = 0; member < all.size(); ++member) {
    if (options.keys_from && all[member].empty()) continue;
    check_public_key(all[member], fmt::format("key of member {}", member));
    const auto twin =
        std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(member), all[member]);
    if (*twin == all[member] && twin != all.begin() + static_cast<std::ptrdiff_t>(member)) {
      refuse(
          fmt::format("members {} and {} have the same key {}: every site needs its own "
                      "(`isthmus keygen`)",
                      twin - all.begin(), member, key_label(all[member])));
    }
  }
  const std::string own = public_of(options.keys->secret);
  if (own != options.keys->public_key || own != all[static_cast<std::size_t>(self)]) {
    refuse(
        fmt::format("key of member {}: the configuration has {}, but the public key of its key "
                    "file is {}; take the file of this site, or correct the configuration",
                    self, key_label(all[static_cast<std::size_t>(self)]), key_label(own)));
  }
}

}  // namespace

void check_endpoint(const std::string& endpoint, bool listens, bool allowed) {
  constexpr std::string_view kScheme = "tcp://";
  const std::string_view text = endpoint;
  const std::size_t colon = text.rfind(':');
  if (!text.starts_with(kScheme) || colon == std::string_view::npos || colon <= kScheme.size()) {
    throw ConfigError(fmt::format("endpoint \"{}\": must be tcp://HOST:PORT", endpoint));
  }
  const std::string_view host = text.substr(kScheme.size(), colon - kScheme.size());
  const std::string_view port = text.substr(colon + 1);
  const bool any_port = listens && port == "*";
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
  if (!any_port &&
      (!digits || std::stoi(std::string(port)) < 1 || std::stoi(std::string(port)) > 65535)) {
    throw ConfigError(fmt::format("endpoint \"{}\": the port must be 1 to 65535{}", endpoint,
                                  listens ? ", or * for any" : ""));
  }
  if (!allowed && !is_this_machine(host)) {
    throw ConfigError(fmt::format(
        "endpoint \"{}\": links beyond this machine would go unencrypted, for anyone on the way to "
        "read and change; give every site a key (`isthmus keygen`), or use 127.0.0.1, a tunnel, or "
        "net.plaintext = true",
        endpoint));
  }
}

void check_options(const MemberOptions& options) {
  const auto refuse = [](const std::string& text) { throw ConfigError(text); };
  if (options.members < 1 || options.members > kMaxMembers) {
    refuse(fmt::format("members = {}: must be 1 to {}", options.members, kMaxMembers));
  }
  if (options.self.value() < 0 || options.self.value() >= options.members) {
    refuse(fmt::format("member {} of {}: must be 0 to {}", options.self.value(), options.members,
                       options.members - 1));
  }
  if (options.streams < 1 || options.streams > kMaxStreams) {
    refuse(fmt::format("net.streams = {}: must be 1 to {} (parallel connections of a link)",
                       options.streams, kMaxStreams));
  }
  if (options.most_streams != 0 &&
      (options.most_streams < options.streams || options.most_streams > kMaxStreams)) {
    refuse(fmt::format("at most {} connections of a link: must be 0 or {} to {}",
                       options.most_streams, options.streams, kMaxStreams));
  }
  if (options.window_bytes < kSmallestWindow) {
    refuse(fmt::format("a window of {} bytes: must be at least {} (8 of the biggest frames)",
                       options.window_bytes, kSmallestWindow));
  }
  if (options.heartbeat <= Duration{0} || options.dead_after < 3 * options.heartbeat) {
    refuse(fmt::format("net.dead_after = {:.3f} s: must be at least three heartbeats of {:.3f} s",
                       in_seconds(options.dead_after), in_seconds(options.heartbeat)));
  }
  if (options.linger < Duration{0} || options.linger > std::chrono::hours(1)) {
    refuse("a close must wait for what was sent between 0 s and 1 h");
  }
  if (options.name.size() > kMaxMemberName) {
    refuse(fmt::format("site.name = \"{}\": at most {} bytes", options.name, kMaxMemberName));
  }
  const std::string& digest = options.identity.configuration;
  if (!digest.empty() &&
      (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != std::string::npos)) {
    refuse(fmt::format("configuration digest \"{}\": must be a SHA-256 in 64 hexadecimal digits",
                       digest));
  }
  check_keys(options);
  check_endpoint(options.bind, true, may_leave_machine(options));
}

Expected<void, JoinError> NetworkTransport::await_members(TimePoint deadline) {
  std::vector<WorkerId> others;
  for (int member = 0; member < size(); ++member) {
    if (WorkerId(member) != self()) others.push_back(WorkerId(member));
  }
  const auto joined = await_members(deadline, others);
  if (!joined) return Unexpected<JoinError>(joined.error());
  return {};
}

}  // namespace isthmus
