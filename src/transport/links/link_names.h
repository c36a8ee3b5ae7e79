// SPDX-License-Identifier: Apache-2.0
// Reports each peer whose host name has no address: ZeroMQ resolves names by itself, fails silently
// and tries again. A name is looked up until it is known. Belongs to the task that owns the
// sockets; lookups run on a second task, if there are names at all.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "transport/links/name_lookup.h"
#include "transport/links/network_transport.h"

namespace isthmus {

class LinkNames {
 public:
  /// Borrows runtime and options. `event`: reports a name without an address, once a name, and
  /// again when it has one.
  LinkNames(Runtime& runtime, const MemberOptions& options,
            std::function<void(const LinkEvent&)> event, NameLookup::LookUp look_up = resolve_tcp)
      : runtime_(runtime),
        options_(options),
        event_(std::move(event)),
        look_up_(std::move(look_up)) {}

  /// `endpoints`: of all members, as in NetworkTransport::join. Call once.
  void begin(std::span<const std::string> endpoints);
  /// Call in every turn.
  void look(TimePoint now);
  /// "; west.example.org: Name or service not known" for each of `these`; empty: no known trouble.
  [[nodiscard]] std::string troubles(std::span<const WorkerId> these) const;

 private:
  struct Name {
    std::string host;
    int port = 0;
    std::string trouble;  // result of the last lookup
    TimePoint asks_next{};
  };

  Runtime& runtime_;
  const MemberOptions& options_;
  const std::function<void(const LinkEvent&)> event_;
  const NameLookup::LookUp look_up_;
  std::map<int, Name> unknown_;         // by peer
  std::unique_ptr<NameLookup> lookup_;  // null if all addresses are numeric
};

}  // namespace isthmus
