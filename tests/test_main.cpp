// SPDX-License-Identifier: Apache-2.0
// The main function of every test program. A program holds the tests of many files; with
// --sources=core/hash_test.cpp,core/units_test.cpp it runs the tests of these files alone, so that
// ctest runs, names and times them apart. --gtest_filter narrows the choice further.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::string_view kFlag = "--sources=";

/// Takes the flag out of the arguments. RETURNS: the files, none without the flag.
std::vector<std::string> take_sources(int& argc, char** argv) {
  std::vector<std::string> sources;
  char** const end = std::remove_if(argv + 1, argv + argc, [&](const char* argument) {
    const std::string_view text = argument;
    if (!text.starts_with(kFlag)) return false;
    std::istringstream files{std::string(text.substr(kFlag.size()))};
    for (std::string file; std::getline(files, file, ',');) sources.push_back("/" + file);
    return true;
  });
  argc = static_cast<int>(end - argv);
  return sources;
}

/// Excludes the tests of all other files from the filter. RETURNS: how many tests are left of each
/// file.
std::vector<int> choose(const std::vector<std::string>& sources) {
  std::vector<int> tests(sources.size());
  std::string others;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(k);
      const std::string file = "/" + std::string(test.file());
      const auto source = std::ranges::find_if(
          sources, [&](const std::string& each) { return file.ends_with(each); });
      if (source != sources.end()) {
        ++tests[static_cast<std::size_t>(source - sources.begin())];
      } else {
        others += std::string(":") + suite.name() + "." + test.name();
      }
    }
  }
  std::string filter = GTEST_FLAG_GET(filter);
  if (filter.find('-') == std::string::npos) filter += "-";
  GTEST_FLAG_SET(filter, filter + others);
  return tests;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> sources = take_sources(argc, argv);
  ::testing::InitGoogleMock(&argc, argv);
  if (!sources.empty()) {
    const std::vector<int> tests = choose(sources);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (tests[i] > 0) continue;
      std::fprintf(stderr, "--sources: this program has no test of %s\n", sources[i].c_str() + 1);
      return 1;
    }
  }
  return RUN_ALL_TESTS();
}
