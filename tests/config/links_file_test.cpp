// SPDX-License-Identifier: Apache-2.0
// Links files: what is written is read, and what does not fit the sites is one error by name.
#include "config/links_file.h"

#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <vector>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

const std::vector<std::string> kSites = {"east", "west"};

constexpr std::string_view kFile = R"([measured]
at = "2026-11-22T12:30:00Z"
by = "isthmus 1"
[[link]]
between = ["west", "east"]
rate_up = "50Mbit/s"
rate_down = "200Mbit/s"
rtt = "80ms"
)";

std::string refusal(std::string_view text, const std::vector<std::string>& sites = kSites) {
  try {
    (void)read_links_text(text, "links.toml", sites);
    return "";
  } catch (const ConfigErrors& error) {
    return error.what();
  }
}

TEST(LinksFile, EntriesAreThoseOfAConfiguration) {
  const LinksFile file = read_links_text(kFile, "links.toml", kSites);
  ASSERT_EQ(file.links.size(), 1u);
  EXPECT_EQ(file.links[0].a, "west");
  EXPECT_EQ(file.links[0].bits_per_s_up, 50e6);
  EXPECT_EQ(file.links[0].bits_per_s_down, 200e6);
  EXPECT_EQ(file.links[0].rtt, milliseconds(80));
  EXPECT_EQ(file.origin, "links.toml (measured 2026-11-22T12:30:00Z by isthmus 1)");
}

TEST(LinksFile, WhatIsWrittenIsReadBack) {
  NotedLink up_and_down;
  up_and_down.link.a = "east";
  up_and_down.link.b = "west";
  up_and_down.link.bits_per_s_up = 93.21e6;
  up_and_down.link.bits_per_s_down = 48.5e6;
  up_and_down.link.rtt = std::chrono::microseconds(50'130);
  up_and_down.link.jitter = std::chrono::microseconds(210);
  up_and_down.link.streams = 8;
  up_and_down.link.congestion = "cubic";
  up_and_down.notes = {"first line", "second\nline"};
  NotedLink even = up_and_down;
  even.link.b = "north";
  even.link.bits_per_s_down = even.link.bits_per_s_up;
  NotedLink other = even;
  other.link.a = "west";
  const std::string text =
      links_toml({up_and_down, even, other}, {.at = "now", .by = "a \"quoted\" one", .how = "so"});
  const LinksFile file = read_links_text(text, "l.toml", {"east", "west", "north"});
  ASSERT_EQ(file.links.size(), 3u);
  EXPECT_EQ(file.measured.by, "a \"quoted\" one");
  for (std::size_t i = 0; i < 3; ++i) {
    const LinkConfig& want = i == 0 ? up_and_down.link : i == 1 ? even.link : other.link;
    EXPECT_EQ(file.links[i].a, want.a);
    EXPECT_EQ(file.links[i].b, want.b);
    EXPECT_EQ(file.links[i].bits_per_s_up, want.bits_per_s_up);
    EXPECT_EQ(file.links[i].bits_per_s_down, want.bits_per_s_down);
    EXPECT_EQ(file.links[i].rtt, want.rtt);
    EXPECT_EQ(file.links[i].jitter, want.jitter);
    EXPECT_EQ(file.links[i].streams, want.streams);
    EXPECT_EQ(file.links[i].congestion, want.congestion);
  }
  EXPECT_THAT(text, HasSubstr("# second line\n"));
}

TEST(LinksFile, ASiteThatIsNotThereIsNamedWithItsPlace) {
  const std::string text = refusal(kFile, {"east", "wets"});
  EXPECT_THAT(text, HasSubstr("links.toml:5"));
  EXPECT_THAT(text, HasSubstr("names 'west', which is no site"));
  EXPECT_THAT(text, HasSubstr("wets"));
}

TEST(LinksFile, APairThatIsMissingIsNamedWithTheRemedy) {
  const std::string text = refusal(kFile, {"east", "west", "north"});
  EXPECT_THAT(text, HasSubstr("no [[link]] joins 'east' and 'north', 'west' and 'north'"));
  EXPECT_THAT(text, HasSubstr("isthmus bench link"));
  EXPECT_EQ(refusal("[[link]]\nbetween = [\"*\", \"*\"]\nrate = \"1Mbit/s\"\nrtt = \"1ms\"\n",
                    {"east", "west", "north"}),
            "");
}

TEST(LinksFile, WhateverElseIsThereIsRefused) {
  EXPECT_THAT(refusal("[run]\nname = \"x\"\n"), HasSubstr("'run' in a links file"));
  EXPECT_THAT(refusal(std::string(kFile) + "speed = \"1Mbit/s\"\n"), HasSubstr("link.speed"));
  EXPECT_THAT(refusal("[measured]\nwhen = \"x\"\n"), HasSubstr("measured.when"));
  EXPECT_THAT(refusal("[measured]\nat = 3\n"), HasSubstr("must be text"));
  EXPECT_THAT(refusal(""), HasSubstr("no [[link]]"));
  EXPECT_THAT(refusal("[[link]]\nbetween = [\"east\", \"west\"]\nrtt = \"1ms\"\n"),
              HasSubstr("without a rate"));
  EXPECT_THAT(refusal(std::string(kFile) + std::string(kFile.substr(kFile.find("[[link]]")))),
              HasSubstr("two links between"));
  EXPECT_THAT(refusal("[[link"), HasSubstr("not TOML"));
}

TEST(LinksFile, AConfigurationSaysWhereItsLinksComeFrom) {
  Config config = load_config_text(
      std::string(kMinimal) + "[[site]]\nname = \"east\"\n[[site]]\nname = \"west\"\n" +
          "[[link]]\nbetween = [\"east\", \"west\"]\nrate = \"1Mbit/s\"\nrtt = \"1ms\"\n",
      "run.toml", {}, test_context());
  const LinksFile file = read_links_text(kFile, "links.toml", kSites);
  replace_links(config, file.links, "--links " + file.origin);
  const std::string text = resolved_toml(config);
  EXPECT_THAT(text, HasSubstr("# --links links.toml (measured 2026-11-22T12:30:00Z by isthmus 1)"));
  EXPECT_THAT(text, HasSubstr("50Mbit/s"));
  EXPECT_THAT(text, testing::Not(HasSubstr("\"1Mbit/s\"")));
}

TEST(LinksFile, NothingThatComesFromElsewhereBreaksACommentsLine) {
  const std::string controls = "a\r\n\x01\x1b\x7f\xff\xc3\xa9" + std::string(1, '\0') + "b";
  const std::string clean = "a     ?\xc3\xa9 b";
  const std::string text = "[measured]\nat = \"a\\r\\n\\u0001\\u001B\\u007Fb\"\nby = \"c\\rd\"\n" +
                           std::string(kFile.substr(kFile.find("[[link]]")));
  const LinksFile file = read_links_text(text, "l\xff\n.toml", kSites);
  EXPECT_EQ(file.origin, "l? .toml (measured a     b by c d)");

  NotedLink noted;
  noted.link = file.links.at(0);
  noted.notes = {controls};
  const std::string written = links_toml({noted}, file.measured);
  EXPECT_THAT(written, HasSubstr("\n# " + clean + "\n"));
  const LinksFile again = read_links_text(written, "links.toml", kSites);
  EXPECT_EQ(again.measured.at, file.measured.at);

  Config config = load_config_text(
      std::string(kMinimal) + "[[site]]\nname = \"east\"\n[[site]]\nname = \"west\"\n",
      "run\r.toml", {}, test_context());
  replace_links(config, file.links, controls);
  const std::string resolved = resolved_toml(config);
  EXPECT_THAT(resolved, HasSubstr("# " + clean + "\n"));
  EXPECT_THAT(resolved, HasSubstr("# run .toml:"));
  const Config reread = load_config_text(resolved, "config.resolved.toml", {}, test_context());
  EXPECT_EQ(reread.links.at(0).bits_per_s_up, 50e6);
}

}  // namespace
}  // namespace isthmus::this_file
