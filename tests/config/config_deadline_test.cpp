// SPDX-License-Identifier: Apache-2.0
// Deadlines of rounds in a file. What is refused: config_errors_test.cpp.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

#include "config_fixture.h"
#include "isthmus/config.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;

Config with(const std::string& net) {
  return load(std::string(kMinimal) + "[run]\nworkers = 5\n[outer]\nmethod = \"co2\"\n[net]\n" +
              net);
}

TEST(ConfigDeadline, IsATimeOrAutoOrNone) {
  EXPECT_EQ(with("").net.deadline, std::nullopt);
  EXPECT_EQ(with("deadline = \"wait\"\n").net.deadline, std::nullopt);
  EXPECT_EQ(with("deadline = \"auto\"\n").net.deadline, Duration{0});
  EXPECT_EQ(with("deadline = \"20s\"\n").net.deadline, Duration(20s));
  for (const std::string text : {"\"wait\"", "\"auto\"", "\"20s\""}) {
    EXPECT_NE(resolved_toml(with("deadline = " + text + "\n")).find("deadline = " + text),
              std::string::npos)
        << text;
  }
}

// What rounds to 0 ns would be "auto".
TEST(ConfigDeadline, IsAMillisecondAtLeast) {
  EXPECT_EQ(with("deadline = \"1ms\"\n").net.deadline, Duration(1ms));
  for (const std::string text : {"0.4ns", "0.999ms", "0s"}) {
    try {
      (void)with("deadline = \"" + text + "\"\n");
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("net.deadline"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("0.001"), std::string::npos) << error.what();
    }
  }
}

// Of all sites or of none; how long may differ. Only sites that are processes of their own mind it.
TEST(ConfigDeadline, IsAlikeWhereAllHaveOne) {
  const Config none = with(""), shorter = with("deadline = \"2s\"\n"),
               longer = with("deadline = \"auto\"\n");
  EXPECT_EQ(common_values(shorter), common_values(longer));
  EXPECT_NE(common_values(shorter), common_values(none));
  EXPECT_EQ(common_values(none), common_values(with("deadline = \"wait\"\n")));
  EXPECT_EQ(config_digest(none), config_digest(shorter));
  EXPECT_EQ(outcome_digest(none), outcome_digest(shorter));
}

}  // namespace
}  // namespace isthmus::this_file
