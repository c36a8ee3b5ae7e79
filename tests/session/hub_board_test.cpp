// SPDX-License-Identifier: Apache-2.0
// A hub's pages: what it has been told, and when it counts as well.
#include "session/hub/hub_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "app/observe/hub_page.h"

namespace isthmus::app::this_file {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

TEST(HubBoard, IsWellWhileItWaitsAndWhileASiteIsThere) {
  HubBoard board({"east", "west"});
  const TimePoint begin(1h);
  const auto health = [&](TimePoint now) { return hub_page("/healthz", board.snapshot(now)); };
  EXPECT_EQ(health(begin).status, 200);
  EXPECT_EQ(health(begin).body, "waiting for the sites\n");
  board.run("abc");
  board.see({true, true});
  EXPECT_EQ(health(begin + 1h).status, 200) << "none has been sent yet";
  board.wrote(1, 2ms, begin);
  EXPECT_EQ(health(begin + 24h).status, 200) << "a long outer.H";
  EXPECT_EQ(health(begin + 24h).body, "2 of 2 sites are in the run\n");
  board.see({true, false});
  EXPECT_EQ(health(begin + 62s).body, "1 of 2 sites are in the run\n");
  board.see({false, false});
  EXPECT_EQ(health(begin + 62s).status, 503);
  EXPECT_EQ(hub_page("/nothing", board.snapshot(begin)).status, 404);
}

TEST(HubBoard, CountsWhatItIsTold) {
  HubBoard board({"east", "west"});
  const TimePoint begin(1h);
  EXPECT_THAT(hub_page("/metrics", board.snapshot(begin)).body, Not(HasSubstr("hub_round_seconds")))
      << "none is known yet";
  board.run("abc");
  board.see({true, false});
  board.epoch(7);
  board.wrote(1, 10ms, begin);
  board.wrote(2, 30ms, begin + 3s);  // of two fragments
  board.wrote(0, 20ms, begin + 4s);  // an epoch
  board.enrolled(true);
  board.enrolled(false);
  board.enrolled(false);
  const std::string text = hub_page("/metrics", board.snapshot(begin + 5s)).body;
  for (const char* line : {
           "isthmus_hub_epoch 7\n",
           "isthmus_hub_sites 2\n",
           "isthmus_hub_members 1\n",
           "isthmus_hub_site_connected{site=\"east\"} 1\n",
           "isthmus_hub_site_connected{site=\"west\"} 0\n",
           "isthmus_hub_rounds_total 3\n",
           "isthmus_hub_round_seconds 1.5\n",
           "isthmus_hub_log_writes_total 3\n",
           "isthmus_hub_log_write_seconds_total 0.06\n",
           "isthmus_hub_log_last_write_seconds 0.02\n",
           "isthmus_hub_enrolments_total 1\n",
           "isthmus_hub_enrolments_refused_total 2\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(hub_page("/", board.snapshot(begin)).body, HasSubstr("west: not here"));
}

}  // namespace
}  // namespace isthmus::app::this_file
