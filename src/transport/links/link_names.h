// SPDX-License-Identifier: Apache-2.0
// Says of each peer whose name has no address that it has none: ZeroMQ looks names up by itself,
// fails in silence and tries on. A name is asked for until it is known once. Belongs to the task
// that owns the sockets; the lookups have a task of their own, where there are names at all.
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
  /// Borrows runtime and options. `event`: is told of a name without an address, once a name, and
  /// when it has one after all.
  LinkNames(Runtime& runtime, const MemberOptions& options,
            std::function<void(const LinkEvent&)> event, NameLookup::LookUp look_up = resolve_tcp)
      : runtime_(runtime),
        options_(options),
        event_(std::move(event)),
        look_up_(std::move(look_up)) {}

  /// Of all members, as NetworkTransport::join. Call once.
  void begin(std::span<const std::string> endpoints);
  /// Call in every turn.
  void look(TimePoint now);
  /// "; west.example.org: Name or service not known" for each of `these`; empty: nothing is known
  /// to be wrong.
  [[nodiscard]] std::string troubles(std::span<const WorkerId> these) const;

 private:
  struct Name {
    std::string host;
    int port = 0;
    std::string trouble;  // of the last lookup
    TimePoint asks_next{};
  };

  Runtime& runtime_;
  const MemberOptions& options_;
  const std::function<void(const LinkEvent&)> event_;
  const NameLookup::LookUp look_up_;
  std::map<int, Name> unknown_;         // by peer
  std::unique_ptr<NameLookup> lookup_;  // null where all are numbers
};

}  // namespace isthmus
