// SPDX-License-Identifier: Apache-2.0
// How a site finds the others: at their addresses, or, where a site has none because nobody can
// dial it (NAT), by way of the relays that the file names; and the relay that this site, or the
// hub, is for them. With detours the relays are also the way between sites whose direct one fails.
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

/// Those that sites without an address depend on: with a relay, where the hub is none.
[[nodiscard]] std::vector<WorkerId> needed_relays(const Config& config);

/// Whether sites may go round a broken way between two of them: there is a third, or the hub, with
/// a relay where the sites are.
[[nodiscard]] bool has_detours(const Config& config);

/// THROWS: ConfigError for an address or relay that is none, two alike, a relay at a site without
/// an address, a site without an address where there is no relay.
void check_addresses(const Config& config);

/// At sites: where the hub relays. At the hub itself also the relay that it is already.
struct HubRelay {
  std::string place = {};  // hub.relay; empty: the hub is none
  std::unique_ptr<Relay> running = nullptr;
};

class SiteRoutes {
 public:
  /// Serves from now on where this site, or the hub, is a relay that somebody needs. `options`: of
  /// its transport; `endpoint`: where that listens; `told`: what it is told of keys; `hub`: the
  /// member after the sites. Outlives the transport, which may use the routes to
  /// its end. THROWS: SystemError for a relay's port that cannot be had; ConfigError as
  /// check_endpoint for a relay.
  SiteRoutes(Runtime& runtime, std::span<const SiteConfig> sites, const MemberOptions& options,
             const std::string& endpoint, const std::shared_ptr<const ToldKeys>& told = nullptr,
             HubRelay hub = {});
  /// What the transport dials, one a site; its own address at this one's place.
  [[nodiscard]] const std::vector<std::string>& endpoints() const { return endpoints_; }
  /// What it dials where that fails, one a member, the hub included; empty: nothing.
  [[nodiscard]] const std::vector<std::string>& detours() const { return detours_; }
  /// Of a site without an address: "by way of relay.example.org:48300". Empty: it has one.
  [[nodiscard]] std::string way(WorkerId site) const;
  /// Why it is not reached that way; empty: it is, or has an address. Any task.
  [[nodiscard]] std::string trouble(WorkerId site) const;
  /// All of that, to be put behind a text about who is missing; empty: nothing.
  [[nodiscard]] std::string troubles() const;
  /// The run has ended in order: what passes through here may end before this does.
  void finish_in_order();
  /// The relay of this process, for the routes of its member's next transport; null: it is none.
  /// What passes there goes on.
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
