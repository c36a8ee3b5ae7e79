// SPDX-License-Identifier: Apache-2.0
// What a site does that is cut off. What is refused: config_errors_test.cpp.
#include <gtest/gtest.h>

#include "config_fixture.h"
#include "isthmus/config.h"

namespace isthmus {
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
  for (const char* carries : {"localsgd", "diloco", "streaming-diloco"}) {
    EXPECT_EQ(with(carries, "[net]\nmax_solo_rounds = 2\n").net.max_solo_rounds, 2);
  }
}

}  // namespace
}  // namespace isthmus
