// SPDX-License-Identifier: Apache-2.0
// train.trainer: what a run of a trainer from elsewhere needs of its file.
#include <gtest/gtest.h>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

TEST(ConfigTrainer, FromElsewhereNeedsNoDataAndNoBatch) {
  constexpr const char* kExternal = "[train]\ntrainer = \"external\"\nsteps = 9\n";
  const Config config = load(kExternal);
  EXPECT_EQ(config.train.trainer, "external");
  EXPECT_EQ(total_steps(config), 9);
  EXPECT_EQ(load(resolved_toml(config)).train.trainer, "external");
  EXPECT_FALSE(diagnostics_of("[train]\nsteps = 9\n").empty()) << "the built-in trainer does";
  const auto found = diagnostics_of(kExternal, {"train.trainer=torch"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "E-VALUE");
}

// Only within one program do equal seeds give equal initial values.
TEST(ConfigTrainer, FromElsewhereBeginsWithTheFirstSitesValues) {
  EXPECT_EQ(load_minimal().net.start, "same");
  EXPECT_EQ(load_minimal({"train.trainer=external"}).net.start, "first");
  EXPECT_EQ(load_minimal({"train.trainer=external", "net.start=same"}).net.start, "same");
  EXPECT_EQ(load_minimal({"net.start=first"}).net.start, "first");
  EXPECT_EQ(config_digest(load_minimal({"net.start=first"})), config_digest(load_minimal()));
  EXPECT_EQ(outcome_digest(load_minimal({"net.start=first"})), outcome_digest(load_minimal()));
  const std::string resolved = resolved_toml(load_minimal({"train.trainer=external"}));
  const std::size_t place = resolved.find("\nstart = \"first\" ");
  ASSERT_NE(place, std::string::npos) << resolved;
  EXPECT_NE(resolved.substr(place, 100).find("# default of train.trainer"), std::string::npos);
}

// Who trains is told by the trainer itself; results from before the key keep their digests.
TEST(ConfigTrainer, IsNoPartOfWhatSitesHaveInCommon) {
  const Config own = load_minimal(), other = load_minimal({"train.trainer=external"});
  EXPECT_EQ(common_values(other), common_values(own));
  EXPECT_EQ(config_digest(other), config_digest(own));
  EXPECT_NE(outcome_digest(other), outcome_digest(own));
  Config before = own;
  before.origins.erase("train.trainer");
  EXPECT_EQ(outcome_digest(before), outcome_digest(own));
}

}  // namespace
}  // namespace isthmus::this_file
