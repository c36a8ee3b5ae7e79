// SPDX-License-Identifier: Apache-2.0
// Measured links as a table, JSON lines and a links file; the line by which two machines meet.
#include "app/commands/bench/link_report.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/links_file.h"
#include "session/site/link_rendezvous.h"
#include "sim/topology.h"

namespace isthmus::app::this_file {
namespace {

using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

Survey some_survey() {
  Survey survey;
  survey.names = {"east", "west"};
  PairMeasurement pair;
  pair.a = WorkerId(0);
  pair.b = WorkerId(1);
  pair.echo = {.samples = 20,
               .least = milliseconds(50),
               .p50 = microseconds(50'400),
               .p99 = milliseconds(61),
               .jitter = microseconds(300)};
  pair.up.bits_per_s = 91.23456e6;
  pair.up.streams = 4;
  pair.up.scan = {{1, 40e6}, {2, 70e6}, {4, 91e6}};
  pair.up.retransmits = Retransmits{.segments = 10'000, .repeated = 12};
  pair.up.loaded_rtt = milliseconds(130);
  pair.up.congestion = "cubic";
  pair.down.bits_per_s = 20e6;  // nothing else was measured
  survey.pairs.push_back(pair);
  return survey;
}

TEST(LinkReport, TheTableHasARowADirectionAndMakesNothingUp) {
  const std::string text = link_table(some_survey(), Terminal(STDOUT_FILENO, ColorMode::kNever));
  EXPECT_THAT(text, HasSubstr("91.2"));
  EXPECT_THAT(text, HasSubstr("0.12%"));
  EXPECT_THAT(text, HasSubstr("not measured on this"));
  EXPECT_THAT(text, Not(HasSubstr("0.00%"))) << "what was not counted is no zero";
}

TEST(LinkReport, SaysWhatACoreCarriesAndWhatBoundsALink) {
  Survey survey = some_survey();
  PairMeasurement& pair = survey.pairs[0];
  pair.up.bytes = 300'000'000;
  pair.down.bytes = 200'000'000;
  const CarryingCost slow = carrying_cost(survey, WorkerId(1), 0.5);
  EXPECT_DOUBLE_EQ(slow.bits_a_core().value(), 8e9);
  EXPECT_FALSE(slow.bounds(91e6));
  EXPECT_TRUE(slow.bounds(7e9));
  EXPECT_THAT(carrying_words(survey, slow), HasSubstr("processor does not bound it"));
  // Of a link between two others, and of a process that carried next to nothing, nothing is known.
  const CarryingCost other = carrying_cost(survey, WorkerId(2), 0.5);
  EXPECT_EQ(other.bytes, 0u);
  EXPECT_TRUE(carrying_words(survey, other).empty());
  EXPECT_FALSE(carrying_cost(survey, WorkerId(1), 0.001).bits_a_core());
}

TEST(LinkReport, AJsonLineHasNullForWhatWasNotMeasured) {
  const Survey survey = some_survey();
  const json up = json::parse(link_json(survey, survey.pairs[0], true));
  EXPECT_EQ(up["from"], "east");
  EXPECT_EQ(up["streams"], 4);
  EXPECT_EQ(up["segments_resent"], 12);
  EXPECT_EQ(up["rtt_loaded_ms"], 130);
  EXPECT_EQ(up["scan"].size(), 3u);
  const json down = json::parse(link_json(survey, survey.pairs[0], false));
  EXPECT_EQ(down["from"], "west");
  for (const char* key :
       {"streams", "segments", "segments_resent", "rtt_loaded_ms", "congestion"}) {
    EXPECT_TRUE(down[key].is_null()) << key;
  }
}

// The promise of the file: a simulation over the link gets the rates that were measured.
TEST(LinkReport, TheLinkGivesTheMeasuredRatesInASimulation) {
  const Survey survey = some_survey();
  for (const std::string congestion : {"cubic", "reno", "bbr"}) {
    Survey other = survey;
    other.pairs[0].up.congestion = congestion;
    const NotedLink noted = noted_link(other, other.pairs[0]);
    EXPECT_EQ(noted.link.congestion, congestion == "bbr" ? "bbr" : "cubic");
    EXPECT_EQ(noted.link.streams, 4);
    EXPECT_EQ(noted.link.loss, 0) << "its cost is in the rate";
    constexpr double kFourDigits = 1e-3;
    for (const bool up : {true, false}) {
      const double want = up ? 91.23456e6 : 20e6;
      const auto got =
          static_cast<double>(steady_goodput(directed_link(noted.link, up), LinkModel::kTcp));
      EXPECT_NEAR(got, want, kFourDigits * want) << congestion;
    }
    // Echoes of the modelled link: rtt plus jitter on average.
    EXPECT_EQ(noted.link.rtt + noted.link.jitter, survey.pairs[0].echo.p50);
  }
  const NotedLink noted = noted_link(survey, survey.pairs[0]);
  ASSERT_EQ(noted.notes.size(), 3u);
  EXPECT_THAT(noted.notes[0], HasSubstr("12 of 10000 segments sent again"));
  EXPECT_THAT(noted.notes[1], HasSubstr("losses not measured"));
}

TEST(LinkReport, RatesThatPeersMayReportMakeAFileThatLoads) {
  for (const double rate : {1.0, 1e14}) {
    Survey survey = some_survey();
    PairMeasurement& pair = survey.pairs[0];
    pair.up = pair.down = {};
    pair.up.bits_per_s = pair.down.bits_per_s = rate;
    ASSERT_EQ(fault_of(pair), "");
    const std::string text = links_toml({noted_link(survey, pair)}, {});
    const LinksFile file = read_links_text(text, "links.toml", {"east", "west"});
    EXPECT_GE(file.links.at(0).bits_per_s_up, rate);
  }
}

TEST(LinkRendezvous, ACallIsReadAndAnythingElseRefused) {
  const std::string token(32, 'a');
  const auto good = read_call("isthmus-bench-link 1 " + token + " 48200 east.1");
  ASSERT_TRUE(good.has_value()) << good.error();
  EXPECT_EQ(good->token, token);
  EXPECT_EQ(good->port, 48200);
  EXPECT_EQ(good->name, "east.1");
  for (const std::string& bad : std::vector<std::string>{
           "", "GET / HTTP/1.1", "isthmus-bench-link 2 " + token + " 1 x",
           "isthmus-bench-link 1 " + token, "isthmus-bench-link 1 " + token + " 0 x",
           "isthmus-bench-link 1 " + token + " 65536 x", "isthmus-bench-link 1 " + token + " 1 ",
           "isthmus-bench-link 1 " + token + " 1 a\x1b[2J", "isthmus-bench-link 1 zz 1 x",
           "isthmus-bench-link 1 " + token + " 1 " + std::string(65, 'n')}) {
    EXPECT_FALSE(read_call(bad).has_value()) << bad;
  }
}

TEST(LinkRendezvous, PlacesAreReadWithOrWithoutAHost) {
  EXPECT_EQ(parse_host_port("--listen", "[::1]:48200").host, "::1");
  EXPECT_EQ(parse_host_port("--listen", ":48200").host, "");
  EXPECT_EQ(parse_host_port("--listen", "*:1").port, 1);
  for (const char* bad : {"", "host", "host:", "host:0", "host:70000", "host:1x"}) {
    EXPECT_THROW((void)parse_host_port("--to", bad), Error) << bad;
  }
}

}  // namespace
}  // namespace isthmus::app::this_file
