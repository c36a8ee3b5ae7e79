// SPDX-License-Identifier: Apache-2.0
// What a file says of a hub, and what of that all sites must have alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "config_fixture.h"
#include "isthmus/config.h"

namespace isthmus::this_file {
namespace {

using ::testing::Contains;
using ::testing::Pair;

Config with_relay(const std::string& line) {
  return load(std::string(kMinimal) + "[hub]\naddress = \"h:1\"\n" + line +
              "[[site]]\nname = \"east\"\naddress = \"e:1\"\n"
              "[[site]]\nname = \"west\"\naddress = \"w:1\"\n");
}

// Sites of which some go by way of the hub and some do not would look for one another in vain; how
// it is written may differ, since a machine can have other names inside its network.
TEST(ConfigHub, AllSitesMustKnowWhetherItRelays) {
  const Config none = with_relay(""), here = with_relay("relay = \"h:2\"\n"),
               inside = with_relay("relay = \"10.0.0.1:2\"\n");
  EXPECT_THAT(common_values(none), Contains(Pair("hub.relay", "none")));
  EXPECT_THAT(common_values(here), Contains(Pair("hub.relay", "given")));
  EXPECT_EQ(common_values(here), common_values(inside));
  EXPECT_EQ(config_digest(none), config_digest(here));
  EXPECT_EQ(outcome_digest(none), outcome_digest(here));
}

}  // namespace
}  // namespace isthmus::this_file
