// SPDX-License-Identifier: Apache-2.0
// The state that the parts of a HubRun share: the session of the run, the sites and their presence,
// the exchange and the log. HubRun owns the state; the parts borrow it. Only the task that runs the
// hub uses it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/config.h"
#include "isthmus/runtime.h"
#include "session/hub/hub_board.h"
#include "session/hub/hub_keys.h"
#include "session/hub/hub_log.h"
#include "session/hub/merge_log.h"
#include "session/run/site_arguments.h"
#include "session/site/site_notes.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/links/relay/relay.h"

namespace isthmus::app {

struct HubOptions {
  const Config& config;
  const SiteArguments& links;  // listen, key_file
  HubKeys* keys = nullptr;     // if sites have keys
  HubBoard* board = nullptr;   // receives the hub's status
  MergeLog* merges = nullptr;  // of a method whose sites offer contributions to the hub
  std::function<bool()> stopped;
  Runtime& runtime;
  std::unique_ptr<Relay> relay = nullptr;  // of the previous life
};

struct HubState {
  struct Site {
    std::optional<HelloNote> hello;  // of a process that is not in the run
    bool standing = false;           // in the run, and connected
    std::optional<std::pair<TimePoint, std::string>> lost;
  };

  /// Borrows everything that the options refer to, and the log. THROWS: ConfigError for a log of a
  /// run that does not fit this configuration.
  HubState(HubOptions options, HubLog& log);

  [[nodiscard]] const Config& config() const { return options.config; }
  [[nodiscard]] bool anybody_stands() const;
  /// The sites of the run, without `except`.
  [[nodiscard]] std::vector<int> live_sites(WorkerId except) const;
  [[nodiscard]] TimePoint now() const { return options.runtime.clock().now(); }
  [[nodiscard]] Site& site(WorkerId rank) { return sites[static_cast<std::size_t>(rank.value())]; }
  [[nodiscard]] const std::string& name(WorkerId rank) const {
    return options.config.sites[static_cast<std::size_t>(rank.value())].name;
  }
  void send(WorkerId to, const Note& note) { exchange->note(to, write_note(note)); }

  HubOptions options;
  HubLog& log;
  const HelloNote own;  // values of this hub's file that must be equal at all sites
  std::optional<HubLogContents::Session> session;
  std::vector<Site> sites;
  std::vector<bool> live;    // by site: in the run
  bool nobody_left = false;  // all were lost or restarted, one after another
  std::optional<TimePoint> first_stands;
  PeerExchange* exchange = nullptr;  // once the links are open
};

}  // namespace isthmus::app
