// SPDX-License-Identifier: Apache-2.0
// The seeds of a test that plays random schedules. In the ordinary run these are the first few and
// those that have failed once (tests/failing_seeds.txt); in a sweep (--gtest_shuffle, which
// scripts/fault-sweep gives) each --gtest_random_seed has others, and every schedule is announced
// on a line of its own, so that whoever reads along knows which one fails, or kills the process.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "test_paths.h"
#include "test_weight.h"

namespace isthmus::testing_support {

/// "Suite.Test" of the one that runs.
inline std::string name_of_test() {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  return fmt::format("{}.{}", test.test_suite_name(), test.name());
}

/// Those of the running test in the list of those that have failed: lines "NAME SEED why", and
/// comments behind #.
inline std::vector<std::uint64_t> kept_seeds() {
  const std::string path = std::string(kTestsFolder) + "/failing_seeds.txt";
  std::ifstream list(path);
  EXPECT_TRUE(list.is_open()) << path;
  std::vector<std::uint64_t> seeds;
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t seed = 0;
    if (words >> name >> seed && name == name_of_test()) seeds.push_back(seed);
  }
  return seeds;
}

inline std::vector<std::uint64_t> sweep_seeds(std::uint64_t count) {
  std::vector<std::uint64_t> seeds;
  std::uint64_t first = 0;
  if (sweeping()) {
    first = count * static_cast<std::uint64_t>(::testing::UnitTest::GetInstance()->random_seed());
  } else {
    seeds = kept_seeds();
  }
  for (std::uint64_t seed = first; seed < first + count; ++seed) seeds.push_back(seed);
  return seeds;
}

/// One of them: failures while it stands name it.
class SweptSchedule {
 public:
  explicit SweptSchedule(std::uint64_t seed)
      : trace_(__FILE__, __LINE__, fmt::format("seed {}", seed)), parts_before_(parts()) {
    if (!sweeping()) return;
    fmt::print("schedule {} {}\n", name_of_test(), seed);
    std::fflush(stdout);
  }
  [[nodiscard]] bool failed() const { return parts() != parts_before_; }

 private:
  static int parts() {
    const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
    return test.result()->total_part_count();
  }
  ::testing::ScopedTrace trace_;
  const int parts_before_;
};

}  // namespace isthmus::testing_support
