// SPDX-License-Identifier: Apache-2.0
// Whose state each worker takes where a run goes on with another number of them.
#include "session/run/worker_change.h"

#include <gtest/gtest.h>

#include <string>

namespace isthmus::app::this_file {
namespace {

using Former = std::vector<std::optional<int>>;

Former former(const std::string& before, int workers, const std::vector<std::string>& now) {
  CheckpointInfo info{.workers = workers};
  if (!before.empty()) info.settings[kWorkerNames] = before;
  Config config;
  for (const std::string& name : now) {
    SiteConfig site;
    site.name = name;
    config.sites.push_back(site);
  }
  return former_workers(info, config);
}

TEST(WorkerChange, SitesAreKnownByTheirNames) {
  EXPECT_EQ(former("east,west,north", 3, {"east", "north"}), (Former{0, 2}));
  EXPECT_EQ(former("east,west", 2, {"north", "west", "east"}), (Former{std::nullopt, 1, 0}));
}

TEST(WorkerChange, ByTheirNumbersWhereNoNameIsKnown) {
  EXPECT_EQ(former("", 2, {"w0", "w1", "w2"}), (Former{0, 1, std::nullopt}));
  EXPECT_EQ(former("w0,w1", 2, {"east", "west", "north"}), (Former{0, 1, std::nullopt}));
  EXPECT_EQ(former("w0,w1,w2", 3, {"w0"}), (Former{0}));
}

TEST(WorkerChange, AsManyAsEverAreTheSameWhateverTheyAreCalled) {
  EXPECT_EQ(former("east,west", 2, {"west", "east"}), (Former{0, 1}));
}

TEST(WorkerChange, NamesAreThoseOfTheSites) {
  Config config;
  config.sites.resize(2);
  config.sites[0].name = "east";
  config.sites[1].name = "west";
  EXPECT_EQ(worker_names(config), "east,west");
}

}  // namespace
}  // namespace isthmus::app::this_file
