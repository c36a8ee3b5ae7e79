// SPDX-License-Identifier: Apache-2.0
// What a site does that is cut off. What is refused: config_errors_test.cpp.
#include <gtest/gtest.h>

#include <string>

#include "config_fixture.h"
#include "isthmus/config.h"

namespace isthmus::this_file {
namespace {

TEST(Config, HowLongASiteTrainsAloneIsItsOwnAffair) {
  const auto with = [](const std::string& net) {
    return load(std::string(kMinimal) + "[outer]\nmethod = \"diloco\"\n" + net);
  };
  const Config untold = with("");
  const Config told = with("[net]\nmax_solo_rounds = 3\n");
  EXPECT_EQ(untold.net.max_solo_rounds, 1);
  EXPECT_EQ(told.net.max_solo_rounds, 3);
  EXPECT_EQ(outcome_digest(told), outcome_digest(untold)) << "it changes nothing without a fault";
  EXPECT_EQ(config_digest(told), config_digest(untold)) << "a run may go on with another";
  EXPECT_EQ(common_values(told), common_values(untold)) << "sites may differ";
}

TEST(Config, NobodyIsAskedToTrainAloneForNothing) {
  const auto with = [](const std::string& method, const std::string& rest) {
    return load(std::string(kMinimal) + "[outer]\nmethod = \"" + method + "\"\n" + rest);
  };
  // Only a file that asks for it is refused.
  EXPECT_EQ(with("ddp", "").net.max_solo_rounds, 0);
  EXPECT_EQ(with("ddp", "[net]\nmax_solo_rounds = 0\n").net.max_solo_rounds, 0);
  EXPECT_EQ(with("streaming-diloco", "carry = \"stay\"\n").net.max_solo_rounds, 0);
  for (const char* carries : {"localsgd", "diloco", "streaming-diloco", "muloco"}) {
    EXPECT_EQ(with(carries, "[net]\nmax_solo_rounds = 2\n").net.max_solo_rounds, 2);
  }
}

// What nobody has given must not be taken for given when a run's own file is loaded again.
TEST(Config, ADefaultOfTrainingAloneIsNoneOfTheResolvedText) {
  const auto resolved = [](const std::string& method, const std::string& rest) {
    return resolved_toml(
        load(std::string(kMinimal) + "[outer]\nmethod = \"" + method + "\"\n" + rest));
  };
  const std::string may = resolved("streaming-diloco", "");
  EXPECT_EQ(load(may).net.max_solo_rounds, 1);
  EXPECT_EQ(load(may, {"train.offload=x"}).net.max_solo_rounds, 0);
  EXPECT_EQ(load(may, {"outer.carry=stay"}).net.max_solo_rounds, 0);
  const std::string may_not = resolved("streaming-diloco", "carry = \"stay\"\n");
  EXPECT_EQ(load(may_not).net.max_solo_rounds, 0);
  EXPECT_EQ(load(may_not, {"outer.carry=carry"}).net.max_solo_rounds, 1);
  for (const std::string windows : {"0", "1", "3"}) {
    const std::string given = resolved("diloco", "[net]\nmax_solo_rounds = " + windows + "\n");
    EXPECT_EQ(load(given).net.max_solo_rounds, std::stoi(windows)) << given;
    EXPECT_NE(given.find("max_solo_rounds = " + windows), std::string::npos);
  }
}

}  // namespace
}  // namespace isthmus::this_file
