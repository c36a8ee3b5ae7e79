// SPDX-License-Identifier: Apache-2.0
// How a site reaches the others: at their addresses; or through the relays that the file names, for
// a site without an address because of NAT; and the relay that this site, or the hub, provides for
// such sites. With detours the relays also connect sites whose direct path fails.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/config.h"
#include "isthmus/runtime.h"
#include "session/run/hidden_sites.h"
#include "transport/links/relay/relay.h"
#include "transport/links/relay/relayed_links.h"

namespace isthmus::app {

/// The relays that sites without an address need: sites with a relay, if the hub has none.
[[nodiscard]] std::vector<WorkerId> needed_relays(const Config& config);

/// Whether two sites may use a detour when their direct path fails: net.detour is set, and a third
/// site or the hub has a relay, which is on loopback if and only if its own address is.
[[nodiscard]] bool has_detours(const Config& config);

/// THROWS: ConfigError for an invalid address or relay, equal addresses, a relay at a site without
/// an address, and a site without an address when there is no relay.
void check_addresses(const Config& config);

/// At sites: the address of the hub's relay. At the hub also its running relay.
struct HubRelay {
  std::string place = {};  // hub.relay; empty: the hub is no relay
  std::unique_ptr<Relay> running = nullptr;
};

class SiteRoutes {
 public:
  /// Runs a relay from now on if this site, or the hub, is a relay that some site needs. `options`:
  /// of the member's transport; `endpoint`: its listening address; `told`: the keys announced to
  /// it; `hub`: the member after the sites. Outlives the transport, which may use the routes to its
  /// end. THROWS: SystemError for an unavailable relay port; ConfigError as check_endpoint for a
  /// relay.
  SiteRoutes(Runtime& runtime, std::span<const SiteConfig> sites, const MemberOptions& options,
             const std::string& endpoint,
             const std::shared_ptr<const AnnouncedKeys>& told = nullptr, HubRelay hub = {});
  /// The endpoints that the transport dials, one a site; this site's own address at its place.
  [[nodiscard]] const std::vector<std::string>& endpoints() const { return endpoints_; }
  /// The endpoints to dial when those fail, one a member, the hub included; empty: none.
  [[nodiscard]] const std::vector<std::string>& detours() const { return detours_; }
  /// For a site without an address: "by way of relay.example.org:48300". Empty: it has one.
  [[nodiscard]] std::string way(WorkerId site) const;
  /// Why the site is not reached through its relay; empty: it is reached, or has an address. Any
  /// task.
  [[nodiscard]] std::string trouble(WorkerId site) const;
  /// All these troubles, to append to a text about missing sites; empty: none.
  [[nodiscard]] std::string troubles() const;
  /// The run has ended in order: relayed connections may end before this object.
  void finish_in_order();
  /// The relay of this process, for the routes of its member's next transport; null: it is no
  /// relay. Relayed connections continue.
  [[nodiscard]] std::unique_ptr<Relay> take_relay() { return std::move(relay_); }

 private:
  std::string relays_;  // for people
  std::vector<std::string> names_;
  std::vector<WorkerId> hidden_;
  std::vector<std::string> endpoints_;
  std::vector<std::string> detours_;
  std::unique_ptr<Relay> relay_;
  std::unique_ptr<RelayedLinks> links_;
};

}  // namespace isthmus::app
