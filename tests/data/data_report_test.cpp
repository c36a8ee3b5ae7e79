// SPDX-License-Identifier: Apache-2.0
#include "data/data_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Dataset open(const TemporaryDirectory& directory, const std::string& source) {
  SystemStorage storage;
  DataConfig config;
  config.source = source;
  return Dataset::open(storage, config, directory.path());
}

TEST(TokenCensus, CountsIdsAndTheirEntropy) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  write_atomically(storage, directory / "a.txt", "aabbaacd");
  std::int64_t reported = 0;
  const TokenCensus census =
      take_census(open(directory, "text:a.txt"), [&](std::int64_t done, std::int64_t total) {
        EXPECT_EQ(total, 8);
        reported = done;
      });
  EXPECT_EQ(reported, 8);
  EXPECT_EQ(census.tokens, 8);
  EXPECT_EQ(census.smallest, 'a');
  EXPECT_EQ(census.largest, 'd');
  EXPECT_EQ(census.distinct, 4);
  // Shares 1/2, 1/4, 1/8, 1/8: 1.75 bits.
  EXPECT_NEAR(census.unigram_entropy, 1.75 * std::log(2.0), 1e-15);
}

TEST(TokenCensus, CountsHugeIdsWithoutATableForThem) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  std::vector<std::uint32_t> file(256);
  file[0] = 20240801;
  file[1] = 7;
  file[2] = 3;
  file.insert(file.end(), {5, std::numeric_limits<std::int32_t>::max(), 5});
  write_atomically(storage, directory / "x.bin", std::as_bytes(std::span(file)));
  const TokenCensus census = take_census(open(directory, "tokens:x.bin"));
  EXPECT_EQ(census.largest, std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(census.smallest, 5);
  EXPECT_EQ(census.distinct, 2);
  file.back() = 1U << 31;
  write_atomically(storage, directory / "x.bin", std::as_bytes(std::span(file)));
  EXPECT_THAT(message_of<SystemError>([&] { (void)take_census(open(directory, "tokens:x.bin")); }),
              HasSubstr("token id 2147483648 at position 2 of"));
}

TEST(DataChanges, NamesWhatIsGoneChangedAndNew) {
  const std::vector<DataFile> before = {{"a", 3, "x"}, {"b", 3, "y"}, {"c", 3, "z"}, {"d", 1, "w"}};
  const std::vector<DataFile> now = {{"a", 3, "x"}, {"b", 4, "y"}, {"c", 3, "zz"}, {"e", 1, "w"}};
  EXPECT_THAT(
      data_changes(before, now),
      ElementsAre("b: has 4 bytes, had 3", "c: sha256 is zz, was z", "d: is gone", "e: is new"));
  EXPECT_TRUE(data_changes(before, before).empty());
}

}  // namespace
}  // namespace isthmus::this_file
