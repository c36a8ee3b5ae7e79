// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_routes.h"

#include <gmock/gmock.h>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "session/site/site_links.h"
#include "transport/links/tcp/tcp_socket.h"

namespace isthmus::app::this_file {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

SiteConfig site(const std::string& name, const std::string& address,
                const std::string& relay = "") {
  SiteConfig made;
  made.name = name;
  made.address = address;
  made.relay = relay;
  return made;
}

/// What check_addresses says against them; empty: nothing.
std::string refusal(std::vector<SiteConfig> sites, const HubConfig& hub = {}) {
  Config config;
  config.sites = std::move(sites);
  config.hub = hub;
  try {
    check_addresses(config);
    return {};
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(SiteRoutes, ASiteWithoutAnAddressNeedsARelay) {
  const SiteConfig hidden = site("home", "");
  EXPECT_EQ(refusal({site("east", "e:1", "e:2"), hidden, site("den", "")}), "");
  EXPECT_THAT(refusal({site("east", "e:1"), hidden}),
              StartsWith("site 'home': address = \"\": must be HOST:PORT"));
  EXPECT_THAT(refusal({site("east", "e:1"), hidden}), HasSubstr("relay = \"HOST:PORT\""));
}

TEST(SiteRoutes, ARelayMustBeReachedAndHaveAPortOfItsOwn) {
  EXPECT_THAT(refusal({site("east", "e:1"), site("home", "", "h:2")}),
              HasSubstr("relay = \"h:2\" without an address"));
  EXPECT_THAT(refusal({site("east", "e:1", "e:1"), site("home", "")}),
              HasSubstr("site 'east' has the same address and relay e:1"));
  EXPECT_THAT(refusal({site("east", "e:1", "e:2"), site("west", "e:2")}),
              HasSubstr("sites 'east' and 'west' have the same address e:2"));
  EXPECT_THAT(refusal({site("east", "e:1", "e"), site("home", "")}),
              HasSubstr("site 'east': relay = \"e\": must be HOST:PORT"));
}

TEST(SiteRoutes, WhereTheHubRelaysNobodyNeedsAnAddress) {
  const std::vector<SiteConfig> sites = {site("home", ""), site("den", "")};
  EXPECT_EQ(refusal(sites, {.address = "h:1", .relay = "h:2"}), "");
  EXPECT_THAT(refusal(sites, {.address = "h:1"}), StartsWith("site 'home': address = \"\""));
  EXPECT_THAT(refusal(sites, {.address = "h:1", .relay = "h:1"}),
              StartsWith("hub.relay and hub.address are both h:1"));
  EXPECT_THAT(refusal(sites, {.address = "h:1", .relay = "h"}),
              StartsWith("hub.relay = \"h\": must be HOST:PORT"));
  EXPECT_THAT(refusal({site("east", "h:2"), site("den", "")}, {.address = "h:1", .relay = "h:2"}),
              StartsWith("sites 'hub' and 'east' have the same address h:2"));
}

TEST(SiteRoutes, TheHubRelaysForSitesWithoutAddresses) {
  SystemRuntime runtime;
  const std::vector<SiteConfig> sites = {site("home", ""), site("den", "")};
  MemberOptions options{.self = WorkerId(1), .members = 3};
  options.relayed = {WorkerId(0), WorkerId(1)};
  const std::string relay = "127.0.0.1:9";
  const SiteRoutes routes(runtime, sites, options, "tcp://127.0.0.1:4444", nullptr,
                          {.place = relay});
  EXPECT_THAT(routes.endpoints(),
              ElementsAre(StartsWith("tcp://127.0.0.1:"), "tcp://127.0.0.1:4444"));
  EXPECT_EQ(routes.way(WorkerId(0)), "by way of 127.0.0.1:9");
  // The hub itself holds that port.
  options.self = WorkerId(2);
  const TcpSocket taken = TcpSocket::listen_at("127.0.0.1", 0);
  EXPECT_THROW(SiteRoutes(runtime, sites, options, "tcp://127.0.0.1:4444", nullptr,
                          {.place = "127.0.0.1:" + std::to_string(taken.port())}),
               SystemError);
}

TEST(SiteRoutes, ASiteThatRelaysMayLeaveWhereTheHubRelaysToo) {
  Config config;
  config.sites = {site("east", "e:1", "e:2"), site("home", "")};
  EXPECT_THAT(needed_relays(config), ElementsAre(WorkerId(0)));
  config.hub = {.address = "h:1", .relay = "h:2"};
  EXPECT_THAT(needed_relays(config), ElementsAre());
}

TEST(SiteRoutes, OnlyThePairsThatNeedARelayTakeOne) {
  SystemRuntime runtime;
  const std::vector<SiteConfig> sites = {site("east", "127.0.0.1:1", "127.0.0.1:9"),
                                         site("home", ""), site("den", "")};
  EXPECT_THAT(hidden_sites(sites), ElementsAre(WorkerId(1), WorkerId(2)));
  const MemberOptions options{.self = WorkerId(1), .members = 3};
  const SiteRoutes routes(runtime, sites, options, "tcp://127.0.0.1:4444");
  EXPECT_EQ(routes.endpoints()[0], "tcp://127.0.0.1:1");
  EXPECT_EQ(routes.endpoints()[1], "tcp://127.0.0.1:4444");
  EXPECT_THAT(routes.endpoints()[2], StartsWith("tcp://127.0.0.1:"));
  EXPECT_EQ(routes.way(WorkerId(0)), "");
  EXPECT_EQ(routes.way(WorkerId(2)), "by way of 127.0.0.1:9");
}

TEST(SiteRoutes, WhereAThirdRelaysThereIsADetour) {
  SystemRuntime runtime;
  const std::vector<SiteConfig> sites = {site("east", "127.0.0.1:1", "127.0.0.1:9"),
                                         site("west", "127.0.0.1:2"), site("home", ""),
                                         site("north", "127.0.0.1:3")};
  MemberOptions options;
  options.self = WorkerId(1);
  options.members = 5;
  options.relayed = {WorkerId(2)};
  options.detours = true;
  const SiteRoutes routes(runtime, sites, options, "tcp://0.0.0.0:4444");
  // Not to the relay itself, nor to who has no address; to the hub, which has the last place.
  EXPECT_THAT(routes.detours(), ElementsAre("", "", "", StartsWith("tcp://127.0.0.1:"),
                                            StartsWith("tcp://127.0.0.1:")));
  EXPECT_EQ(routes.endpoints()[3], "tcp://127.0.0.1:3");
  options.detours = false;
  const SiteRoutes direct(runtime, sites, options, "tcp://0.0.0.0:4444");
  EXPECT_THAT(direct.detours(), ElementsAre("", "", "", "", ""));
}

TEST(SiteRoutes, ADetourNeedsAThirdSiteAndARelay) {
  Config config;
  config.sites = {site("east", "e:1", "e:2"), site("west", "w:1")};
  EXPECT_FALSE(has_detours(config)) << "two sites";
  config.sites.push_back(site("north", "n:1"));
  EXPECT_TRUE(has_detours(config));
  config.net.detour = false;
  EXPECT_FALSE(has_detours(config));
  config.net.detour = true;
  for (SiteConfig& each : config.sites) each.address = "127.0.0.1:1";
  EXPECT_FALSE(has_detours(config)) << "started on one machine, where there is no relay";
  config.sites[0].relay = "127.0.0.1:2";
  EXPECT_TRUE(has_detours(config));
  config.sites[0].relay.clear();
  EXPECT_FALSE(has_detours(config));
  config.sites.pop_back();
  config.hub = {.address = "127.0.0.1:3", .relay = "127.0.0.1:4"};
  EXPECT_TRUE(has_detours(config)) << "two sites, and the hub is the third";
}

TEST(SiteRoutes, ARelayBeyondThisMachineNeedsKeysAsLinksDo) {
  SystemRuntime runtime;
  const std::vector<SiteConfig> sites = {site("east", "127.0.0.1:1", "203.0.113.9:9"),
                                         site("home", "")};
  const MemberOptions options{.self = WorkerId(1), .members = 2};
  EXPECT_THROW(SiteRoutes(runtime, sites, options, "tcp://127.0.0.1:4444"), ConfigError);
}

TEST(SiteRoutes, ASiteWithoutAnAddressListensNowhere) {
  Config config;
  config.sites = {site("east", "127.0.0.1:1", "127.0.0.1:9"), site("home", "")};
  SiteArguments arguments;
  EXPECT_NO_THROW((void)link_options(config, arguments, WorkerId(1), nullptr));
  arguments.listen = "0.0.0.0:7";
  EXPECT_NO_THROW((void)link_options(config, arguments, WorkerId(0), nullptr));
  EXPECT_THROW((void)link_options(config, arguments, WorkerId(1), nullptr), ConfigError);
}

}  // namespace
}  // namespace isthmus::app::this_file
