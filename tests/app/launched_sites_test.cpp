// SPDX-License-Identifier: Apache-2.0
// Which sites are started again, with shells that stand in for them.
#include "app/commands/launched_sites.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "core/temporary_directory.h"

namespace isthmus::app::this_file {
namespace {

class LaunchedSites : public testing::Test {
 protected:
  void SetUp() override {
    descriptor_ = ::open((folder_ / "said").c_str(), O_CREAT | O_RDWR, 0600);
    ASSERT_GE(descriptor_, 0);
  }
  void TearDown() override { ::close(descriptor_); }
  std::string said() {
    std::ifstream stream(folder_ / "said");
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  /// "" when all ended well, else who did not and how: "west 5".
  std::string run(const std::vector<LaunchedSite>& sites, int restarts) {
    Terminal err(descriptor_, ColorMode::kNever);
    const auto failure = run_sites(sites, restarts, err);
    return failure ? fmt::format("{} {}", failure->site, failure->exit_code) : "";
  }
  static LaunchedSite site(const std::string& name, const std::string& first,
                           const std::string& again) {
    return {name, {"sh", "-c", first}, {"sh", "-c", again}};
  }
  /// Waits until the other site has touched `name`, for half a minute.
  [[nodiscard]] std::string until(const std::string& name) const {
    return fmt::format("n=0; until [ -e {} ] || [ $n = 600 ]; do sleep 0.05; n=$((n + 1)); done",
                       (folder_ / name).string());
  }
  [[nodiscard]] std::string touch(const std::string& name) const {
    return fmt::format("touch {}", (folder_ / name).string());
  }

  TemporaryDirectory folder_;
  int descriptor_ = -1;
};

TEST_F(LaunchedSites, AreStartedAgainWithTheirSecondCommand) {
  EXPECT_EQ(
      run({site("east", until("back"), "exit 3"), site("west", "kill -9 $$", touch("back"))}, 1),
      "");
  EXPECT_EQ(said(), "west | ended by signal 9; starting it again in 1 s (restart 1 of 1)\n");
}

TEST_F(LaunchedSites, AreNotStartedAgainUnlessToldTo) {
  EXPECT_EQ(run({site("east", "exit 5", "exit 0")}, 0), "east 5");
  EXPECT_EQ(said(), "");
}

TEST_F(LaunchedSites, AreStartedAgainAsOftenAsToldAndTheOthersGoOn) {
  // East ends once the launcher has seen the end of west's second process.
  const std::string reaped = fmt::format(
      "while ! [ -s {0} ] || kill -0 $(cat {0}) 2>/dev/null; "
      "do sleep 0.02; done",
      (folder_ / "pid").string());
  EXPECT_EQ(
      run({site("east", reaped + "; exit 3", "exit 3"),
           site("west", "exit 5", fmt::format("echo $$ > {}; exit 5", (folder_ / "pid").string()))},
          1),
      "west 5");
  EXPECT_EQ(said(), "west | ended by exit code 5; starting it again in 1 s (restart 1 of 1)\n");
}

TEST_F(LaunchedSites, AreNotStartedAgainForOtherReasons) {
  for (const int code : {1, 2, 3, 4, 85, 130}) {
    EXPECT_FALSE(mends_by_restart(code)) << code;
    EXPECT_EQ(run({site("east", fmt::format("exit {}", code), "exit 0")}, 3),
              fmt::format("east {}", code));
  }
  EXPECT_EQ(said(), "");
}

TEST_F(LaunchedSites, GoOnWithoutOneThatHasLeft) {
  const std::string reaped =
      fmt::format("while ! [ -s {0} ] || kill -0 $(cat {0}) 2>/dev/null; do sleep 0.02; done",
                  (folder_ / "pid").string());
  EXPECT_EQ(run({site("east", reaped + "; kill -9 $$", "exit 0"),
                 site("west", fmt::format("echo $$ > {}; exit 85", (folder_ / "pid").string()),
                      "exit 2")},
                1),
            "");  // the run is complete: nothing to requeue
  EXPECT_EQ(said(), "east | ended by signal 9; starting it again in 1 s (restart 1 of 1)\n");
}

TEST_F(LaunchedSites, OfARunThatOneHasCompletedAreNotStartedAgain) {
  EXPECT_EQ(run({site("east", touch("done"), "exit 3"),
                 site("west", until("done") + "; exit 5", "exit 0")},
                3),
            "west 5");
}

TEST_F(LaunchedSites, HaveTheirHubStartedAgainAsLongAsTheyAreThere) {
  const std::string reaped =
      fmt::format("while ! [ -s {0} ] || kill -0 $(cat {0}) 2>/dev/null; do sleep 0.02; done",
                  (folder_ / "pid").string());
  LaunchedSite hub = site("hub", reaped + "; kill -9 $$", touch("back"));
  hub.hub = true;
  EXPECT_EQ(
      run({hub, site("east", fmt::format("echo $$ > {}", (folder_ / "pid").string()), ""),
           site("west", until("back") + fmt::format("; [ -e {} ]", (folder_ / "back").string()),
                "exit 3")},
          1),
      "");
  EXPECT_EQ(said(), "hub  | ended by signal 9; starting it again in 1 s (restart 1 of 1)\n");
}

TEST(RestartDelay, DoublesUpToHalfAMinute) {
  const double wanted[] = {1, 2, 4, 8, 16, 30, 30};
  int lives = 0;
  for (const double each : wanted) {
    lives = short_lives(lives, 29.9);
    EXPECT_EQ(restart_delay_s(lives), each);
  }
  EXPECT_EQ(restart_delay_s(short_lives(lives, 30)), 1);
}

}  // namespace
}  // namespace isthmus::app::this_file
