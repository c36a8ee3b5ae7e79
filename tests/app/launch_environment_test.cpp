// SPDX-License-Identifier: Apache-2.0
#include "app/common/launch_environment.h"

#include <gtest/gtest.h>

#include <map>

#include "isthmus/errors.h"

namespace isthmus::app::this_file {
namespace {

Lookup of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Config three_sites() {
  Config config;
  config.file = "run.toml";
  for (const char* name : {"east", "west", "south"}) {
    config.sites.emplace_back();
    config.sites.back().name = name;
  }
  return config;
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(LaunchEnvironment, TheFirstThatMatchesSaysTheRank) {
  EXPECT_FALSE(find_launch_environment(of({{"WORLD_SIZE", "4"}})));
  const auto torchrun = find_launch_environment(of({{"RANK", "3"}, {"WORLD_SIZE", "4"}}));
  ASSERT_TRUE(torchrun);
  EXPECT_EQ(torchrun->by, "torchrun");
  EXPECT_EQ(torchrun->rank, 3);
  EXPECT_EQ(torchrun->size, 4);
  // mpirun in a Slurm batch script, whose own rank all inherit.
  const auto inner = find_launch_environment(of({{"SLURM_PROCID", "0"},
                                                 {"SLURM_NTASKS", "2"},
                                                 {"OMPI_COMM_WORLD_RANK", "1"},
                                                 {"OMPI_COMM_WORLD_SIZE", "2"}}));
  ASSERT_TRUE(inner);
  EXPECT_EQ(inner->variable, "OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(inner->rank, 1);
  const auto slurm = find_launch_environment(of({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}));
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->by, "Slurm");
  const auto kubernetes = find_launch_environment(of({{"JOB_COMPLETION_INDEX", "2"}}));
  ASSERT_TRUE(kubernetes);
  EXPECT_FALSE(kubernetes->size);
}

TEST(LaunchEnvironment, WhoCountsNeighboursSaysHowManyAreHere) {
  const auto here = [](std::map<std::string, std::string> variables) {
    return find_launch_environment(of(std::move(variables))).value().here;
  };
  EXPECT_EQ(here({{"RANK", "3"}, {"WORLD_SIZE", "4"}}), std::nullopt);
  EXPECT_EQ(here({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}), 2);
  const std::map<std::string, std::string> slurm = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}};
  const auto nodes = [&](const char* count) {
    auto variables = slurm;
    variables["SLURM_STEP_NUM_NODES"] = count;
    return here(variables);
  };
  EXPECT_EQ(here(slurm), std::nullopt);
  EXPECT_EQ(nodes("2"), std::nullopt);
  EXPECT_EQ(nodes("1"), 4);
}

TEST(LaunchEnvironment, SiteAutoIsTheSiteOfTheRank) {
  const Config config = three_sites();
  EXPECT_EQ(site_of_environment(config, of({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}})), "west");
  EXPECT_EQ(site_of_environment(config, of({{"JOB_COMPLETION_INDEX", "2"}})), "south");
}

TEST(LaunchEnvironment, WhatCannotBeIsRefusedByName) {
  const Config config = three_sites();
  const auto why = [&](std::map<std::string, std::string> variables) {
    return refusal([&] { (void)site_of_environment(config, of(std::move(variables))); });
  };
  EXPECT_NE(why({}).find("SLURM_PROCID"), std::string::npos) << why({});
  EXPECT_NE(why({{"RANK", "x"}}).find("RANK = 'x'"), std::string::npos);
  EXPECT_NE(why({{"RANK", "-1"}}).find("from 0"), std::string::npos);
  EXPECT_NE(why({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).find("WORLD_SIZE = 2"), std::string::npos);
  EXPECT_NE(why({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).find("3 sites"), std::string::npos);
  EXPECT_NE(why({{"JOB_COMPLETION_INDEX", "3"}}).find("3 sites"), std::string::npos);
}

}  // namespace
}  // namespace isthmus::app::this_file
