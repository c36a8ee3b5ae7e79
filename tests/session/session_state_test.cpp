// SPDX-License-Identifier: Apache-2.0
// What a site makes of the coordinator's words while it looks for its run, in whatever order they
// come: a hub that begins anew says that a run goes on, and then that one begins with this site.
#include "session/site/session_state.h"

#include <gtest/gtest.h>

#include <string>

namespace isthmus::this_file {
namespace {

using app::RunningNote;
using app::SessionState;
using app::StartNote;

/// Three sites and a hub; the state is that of the first.
struct Site {
  static Config with_a_hub() {
    Config config;
    for (const char* name : {"east", "west", "north"}) {
      config.sites.emplace_back().name = name;
      config.sites.back().address = std::string(name) + ":48200";  // nobody is dialled
    }
    config.origins["site[0].name"] = {};
    config.hub.address = "127.0.0.1:48100";
    return config;
  }
  Config config = with_a_hub();
  app::SiteArguments arguments{.name = "east"};
  Wishes wishes;
  SessionState state{config, arguments, {}, wishes};
};

RunningNote running(const std::string& session) {
  return {.run_id = "run", .live = {1, 2}, .donor = 1, .session = session};
}
StartNote start(const std::string& session) { return {.run_id = "run", .session = session}; }

TEST(SessionState, AStartOfAnotherSessionVoidsTheRunThatWentOn) {
  Site site;
  site.state.hear_running(running("before"), false);
  site.state.hear_start(start("anew"), false);
  EXPECT_FALSE(site.state.arrival.running.has_value());
  EXPECT_FALSE(site.state.arrival.is_past);
  ASSERT_TRUE(site.state.meeting.start.has_value());
  EXPECT_EQ(site.state.meeting.start->session, "anew");
}

TEST(SessionState, WhoHasAskedForAStateIsToldThatItsRunIsPast) {
  for (const bool by_start : {true, false}) {
    Site site;
    site.state.hear_running(running("before"), false);
    if (by_start) {
      site.state.hear_start(start("anew"), true);
    } else {
      site.state.hear_running(running("anew"), true);
    }
    EXPECT_TRUE(site.state.arrival.is_past) << by_start;
    EXPECT_TRUE(site.state.arrival.running.has_value()) << by_start;
  }
}

TEST(SessionState, AStartOfTheSameSessionLeavesTheRunToBeJoined) {
  Site site;  // it began, was lost at once, and comes back
  site.state.hear_start(start("one"), false);
  site.state.hear_running(running("one"), false);
  site.state.hear_start(start("one"), false);  // said before, and late on its way
  EXPECT_TRUE(site.state.arrival.running.has_value());
  site.state.hear_running(running("one"), true);
  EXPECT_FALSE(site.state.arrival.is_past);
}

}  // namespace
}  // namespace isthmus::this_file
