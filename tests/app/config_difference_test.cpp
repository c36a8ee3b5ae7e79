// SPDX-License-Identifier: Apache-2.0
#include "session/run/config_difference.h"

#include <gmock/gmock.h>

namespace isthmus::app::this_file {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ConfigDifferences, NamesKeysWithBothValuesAndIgnoresOrigins) {
  EXPECT_THAT(config_differences("[train]\nsteps = 60   # a.toml:3:9\ncontext = 64\n",
                                 "[train]\nsteps = 70   # --set\ncontext = 64  # default\n"),
              ElementsAre("train.steps = 60 there, 70 here"));
}

TEST(ConfigDifferences, TellsAbsentKeysOnEitherSide) {
  EXPECT_THAT(
      config_differences("[outer]\nH = 20\n", "[outer]\ncodec = \"int8\""),
      ElementsAre("outer.codec = absent there, \"int8\" here", "outer.H = 20 there, absent here"));
}

TEST(ConfigDifferences, KeepsRepeatedSectionsApart) {
  const char* two_sites = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n";
  EXPECT_THAT(config_differences(two_sites, two_sites), IsEmpty());
  EXPECT_THAT(config_differences(two_sites, "[[site]]\nname = \"a\"\n[[site]]\nname = \"c\"\n"),
              ElementsAre("site[1].name = \"b\" there, \"c\" here"));
}

TEST(ConfigDifferences, OfEmptyTextsAreNone) { EXPECT_THAT(config_differences("", ""), IsEmpty()); }

}  // namespace
}  // namespace isthmus::app::this_file
